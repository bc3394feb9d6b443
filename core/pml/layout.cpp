#include "core/pml/layout.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/pml/chunk_encoder.h"

namespace promptcached::pml {
namespace {

// Slots cost memory without text: a few kilobytes of params in unions could reserve any number of placeholder tokens.
constexpr std::int64_t kMostSlotTokens = std::int64_t{4} << 20;

// Positions are counted in 64 bits, and nothing is stored past the model's maximum: a schema that is too long is
// counted to its end, for the message, at no cost in memory.
class LayoutBuilder final {
 public:
  LayoutBuilder(const ModelText& model, Schema& schema) : model_(model), schema_(schema), encoder_(model) {}

  Status run(const SchemaTree& tree);

 private:
  // Each place_* moves `position` past what it places.
  Status place_module(const ModuleNode& node, ModuleIndex parent, int union_number, std::int64_t& position);
  Status place_items(const ModuleNode& node, ModuleIndex index, std::int64_t& position);
  Status place_chunk(const TextChunk& chunk, const ModuleNode& node, ModuleIndex index, std::int64_t& position);
  Status place_parameter(const ParameterNode& node, bool allow_special, ModuleIndex index, std::int64_t& position);
  Status place_union(const UnionNode& node, ModuleIndex parent, std::int64_t& position);
  void place_bos(std::int64_t& position);
  Result<std::vector<TokenId>> placeholder_tokens(const ParameterNode& node, bool allow_special);
  ModuleIndex add_module(const ModuleNode& node, ModuleIndex parent, int union_number);
  void add_tokens(ModuleIndex index, std::int64_t start, std::vector<TokenId> tokens);
  void add_role_tags(const TextChunk& chunk, ModuleIndex index, std::int64_t start, std::int64_t end);
  void warn_about_spelled_tokens(const TextChunk& chunk);
  // Remembers where the maximum was passed first; false from there on.
  bool fits(std::int64_t end, SourceLocation location);

  Module& module(ModuleIndex index) { return schema_.modules[static_cast<std::size_t>(index)]; }

  const ModelText& model_;
  Schema& schema_;
  ChunkEncoder encoder_;
  bool after_system_ = false;  // the last role tag of the text that is surely in front is </system>
  std::int64_t slot_tokens_ = 0;
  std::optional<SourceLocation> overflow_;
};

Status LayoutBuilder::run(const SchemaTree& tree) {
  assert(model_.max_positions > 0);
  std::int64_t position = 0;
  Status status = place_module(tree.root, -1, 0, position);
  if (!status.ok()) {
    return status;
  }
  if (overflow_) {
    return make_error_at(ErrorCode::kContextLengthExceeded, *overflow_,
                         "the schema '" + tree.name + "' takes " + std::to_string(position) +
                             " positions, but the model has " + std::to_string(model_.max_positions) +
                             ": the maximum is passed here");
  }
  schema_.positions = static_cast<std::int32_t>(position);
  for (const Module& placed : schema_.modules) {
    schema_.token_count += placed.token_count();
  }
  schema_.by_path.resize(schema_.modules.size());
  std::iota(schema_.by_path.begin(), schema_.by_path.end(), ModuleIndex{0});
  std::ranges::sort(schema_.by_path, {}, [&](ModuleIndex index) -> const std::string& { return module(index).path; });
  return {};
}

bool LayoutBuilder::fits(std::int64_t end, SourceLocation location) {
  if (end > model_.max_positions && !overflow_) {
    overflow_ = location;
  }
  return end <= model_.max_positions;
}

ModuleIndex LayoutBuilder::add_module(const ModuleNode& node, ModuleIndex parent, int union_number) {
  const auto index = static_cast<ModuleIndex>(schema_.modules.size());
  Module added;
  added.parent = parent;
  added.union_number = union_number;
  added.is_union_default = node.is_union_default;
  added.retention = node.retention;
  added.cache = node.cache;
  added.location = node.location;
  if (parent < 0) {
    added.name = added.path = "#root";
  } else {
    added.name = node.name;
    added.path = parent == kRoot ? node.name : module(parent).path + "/" + node.name;
    module(parent).children.push_back(index);
  }
  schema_.modules.push_back(std::move(added));
  return index;
}

Status LayoutBuilder::place_module(const ModuleNode& node, ModuleIndex parent, int union_number,
                                   std::int64_t& position) {
  const ModuleIndex index = add_module(node, parent, union_number);
  const std::int64_t start = position;
  if (index == kRoot) {
    place_bos(position);
  }
  const bool after_system = after_system_;
  Status status = place_items(node, index, position);
  after_system_ = after_system;  // what follows may be used without this module
  if (status.ok() && fits(position, node.location)) {
    module(index).start = static_cast<std::int32_t>(start);
    module(index).end = static_cast<std::int32_t>(position);
  }
  return status;
}

Status LayoutBuilder::place_items(const ModuleNode& node, ModuleIndex index, std::int64_t& position) {
  for (const ModuleItem& item : node.items) {
    Status status;
    if (const auto* chunk = std::get_if<TextChunk>(&item.content)) {
      status = place_chunk(*chunk, node, index, position);
    } else if (const auto* parameter = std::get_if<ParameterNode>(&item.content)) {
      status = place_parameter(*parameter, node.allow_special_tokens, index, position);
    } else if (const auto* nested = std::get_if<ModuleNode>(&item.content)) {
      status = place_module(*nested, index, 0, position);
    } else {
      status = place_union(std::get<UnionNode>(item.content), index, position);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

// Once, at position 0, as root text, whatever the schema begins with: the tokenizer's, or else the chat template's.
void LayoutBuilder::place_bos(std::int64_t& position) {
  std::optional<TokenId> bos = model_.tokenizer->bos_id();
  if (!bos && !model_.roles.bos.empty()) {
    bos = model_.tokenizer->token_to_id(model_.roles.bos);
  }
  if (bos) {
    add_tokens(kRoot, position, {*bos});
    ++position;
  }
}

Status LayoutBuilder::place_chunk(const TextChunk& chunk, const ModuleNode& node, ModuleIndex index,
                                  std::int64_t& position) {
  Result<std::vector<TokenId>> tokens =
      encoder_.encode(chunk, {.allow_special_tokens = node.allow_special_tokens, .after_system = after_system_});
  if (!tokens.ok()) {
    return tokens.error();
  }
  after_system_ = chunk.leaves_after_system(after_system_);
  if (!node.allow_special_tokens) {
    warn_about_spelled_tokens(chunk);
  }
  const std::int64_t start = position;
  position += static_cast<std::int64_t>(tokens->size());
  if (fits(position, chunk.location)) {
    add_tokens(index, start, std::move(*tokens));
    add_role_tags(chunk, index, start, position);
  }
  return {};
}

void LayoutBuilder::add_tokens(ModuleIndex index, std::int64_t start, std::vector<TokenId> tokens) {
  std::vector<TokenRun>& text = module(index).text;
  if (tokens.empty()) {
    return;
  }
  if (!text.empty() && text.back().end() == start) {
    text.back().tokens.insert(text.back().tokens.end(), tokens.begin(), tokens.end());
  } else {
    text.push_back({static_cast<std::int32_t>(start), std::move(tokens)});
  }
}

void LayoutBuilder::add_role_tags(const TextChunk& chunk, ModuleIndex index, std::int64_t start, std::int64_t end) {
  for (std::size_t i = 0; i < chunk.pieces.size(); ++i) {
    if (const auto* tag = std::get_if<RoleTag>(&chunk.pieces[i])) {
      module(index).role_tags.push_back(
          {*tag, static_cast<std::int32_t>(start), static_cast<std::int32_t>(end), only_whitespace_follows(chunk, i)});
    }
  }
}

void LayoutBuilder::warn_about_spelled_tokens(const TextChunk& chunk) {
  for (const auto& piece : chunk.pieces) {
    const auto* text = std::get_if<std::string>(&piece);
    if (text == nullptr) {
      continue;
    }
    if (const auto token = encoder_.spelled_control_token(*text)) {
      warn(schema_.warnings, chunk.location,
           "this text spells the control token '" + *token +
               "', which is encoded as ordinary text; role tags emit control tokens, or special-tokens=\"allow\"");
      return;
    }
  }
}

Status LayoutBuilder::place_parameter(const ParameterNode& node, bool allow_special, ModuleIndex index,
                                      std::int64_t& position) {
  const std::int64_t start = position;
  position += node.length;
  if (!fits(position, node.location)) {
    return {};
  }
  slot_tokens_ += node.length;
  if (slot_tokens_ > kMostSlotTokens) {
    return make_error_at(
        ErrorCode::kInvalidPml, node.location,
        "all slots of the schema together hold more than " + std::to_string(kMostSlotTokens) + " tokens");
  }
  Result<std::vector<TokenId>> placeholder = placeholder_tokens(node, allow_special);
  if (!placeholder.ok()) {
    return placeholder.error();
  }
  module(index).parameters.push_back(
      {node.name, static_cast<std::int32_t>(start), node.length, std::move(*placeholder), node.location});
  return {};
}

Result<std::vector<TokenId>> LayoutBuilder::placeholder_tokens(const ParameterNode& node, bool allow_special) {
  Result<std::vector<TokenId>> tokens = encoder_.encode_text(node.placeholder, allow_special);
  if (!tokens.ok()) {
    return tokens;
  }
  const auto length = static_cast<std::size_t>(node.length);
  if (tokens->size() > length) {
    return make_error_at(ErrorCode::kArgumentTooLong, node.location,
                         "the scaffold text of the slot '" + node.name + "' is " + std::to_string(tokens->size()) +
                             " tokens long; the slot holds " + std::to_string(length));
  }
  tokens->resize(length, model_.tokenizer->placeholder_id());
  return tokens;
}

// All members start at one position; the union is as long as its longest member.
Status LayoutBuilder::place_union(const UnionNode& node, ModuleIndex parent, std::int64_t& position) {
  const std::int64_t start = position;
  for (const ModuleNode& member : node.members) {
    std::int64_t end = start;
    Status status = place_module(member, parent, node.number, end);
    if (!status.ok()) {
      return status;
    }
    position = std::max(position, end);
  }
  return {};
}

}  // namespace

Status lay_out(const SchemaTree& tree, const ModelText& model, Schema& schema) {
  return LayoutBuilder(model, schema).run(tree);
}

}  // namespace promptcached::pml
