// Joins a prompt with its schema. Everything that can be refused about a prompt is refused here, before anything is
// computed.
#include <algorithm>
#include <cassert>
#include <limits>
#include <unordered_map>
#include <utility>

#include "core/pml/assembly_plan.h"
#include "core/pml/chunk_encoder.h"
#include "core/pml/chunks.h"
#include "core/pml/imports.h"
#include "core/pml/prompt_document.h"
#include "core/pml/role_lint.h"
#include "core/pml/text_placement.h"

namespace promptcached::pml {
namespace {

class Resolver final {
 public:
  Resolver(std::shared_ptr<const Schema> schema, const PromptDocument& prompt, const ModelText& model,
           const ResolveOptions& options)
      : schema_(*schema),
        prompt_(prompt),
        model_(model),
        options_(options),
        encoder_(model),
        imports_(schema_, encoder_) {
    plan_.schema = std::move(schema);
  }

  Result<AssemblyPlan> run();

 private:
  // A role tag that the prompt uses, wherever it comes from.
  struct UsedTag {
    PlacedRoleTag placed;
    bool in_prompt = false;
  };

  Status add_imports(const std::vector<const Element*>& elements);
  void add_cached_parts();
  std::unordered_map<ModuleIndex, EntryIndex> choose_joint_entries() const;
  Status add_texts(const std::vector<TextChunk>& chunks);
  Status add_text(const TextChunk& chunk, std::int64_t start, TextPlacement& placement);
  Status add_text_at_end(const TextChunk& chunk);
  bool needs_generation_prompt(const TextChunk& last);
  bool is_after_system(std::int64_t position) const;
  std::int64_t used_end() const;
  void add_role_tags(const TextChunk& chunk, std::int64_t start, std::int64_t end);
  void lint_role_tags();
  Status add_tokens(const std::vector<TokenId>& tokens, std::int64_t start, SourceLocation location);
  Status finish();
  void recompute_last_token();
  Status check_length(std::int64_t end) const;

  const Module& module(ModuleIndex index) const { return schema_.modules[static_cast<std::size_t>(index)]; }

  const Schema& schema_;
  const PromptDocument& prompt_;
  const ModelText& model_;
  const ResolveOptions& options_;
  ChunkEncoder encoder_;
  ImportResolver imports_;
  std::vector<ModuleIndex> top_imports_;  // as written; chunk i + 1 follows import i
  std::vector<ModuleIndex> used_;         // the root and all imported modules, document order
  std::vector<UsedTag> tags_;
  AssemblyPlan plan_;
};

Result<AssemblyPlan> Resolver::run() {
  if (prompt_.schema != schema_.name) {
    return make_error_at(ErrorCode::kUnknownSchema, prompt_.root.location,
                         "the prompt is for the schema '" + shown(prompt_.schema) + "', not '" + schema_.name + "'");
  }
  const ChunkedChildren children =
      split_into_chunks(prompt_.root, Edge::kDocumentEnd, {schema_.whitespace, prompt_.preserve_space});
  Status status = add_imports(children.elements);
  if (status.ok()) {
    add_cached_parts();
    status = add_texts(children.chunks);
  }
  if (status.ok()) {
    status = finish();
  }
  if (!status.ok()) {
    return status.error();
  }
  plan_.has_role_tags = !tags_.empty();
  lint_role_tags();
  return std::move(plan_);
}

Status Resolver::add_imports(const std::vector<const Element*>& elements) {
  for (const Element* element : elements) {
    const Result<ModuleIndex> added = imports_.add(*element);
    if (!added.ok()) {
      return added.error();
    }
    top_imports_.push_back(*added);
  }
  used_ = imports_.modules();
  used_.insert(used_.begin(), kRoot);
  plan_.new_tokens = imports_.arguments();
  for (const ModuleIndex index : used_) {
    for (const PlacedRoleTag& tag : module(index).role_tags) {
      tags_.push_back({tag, false});
    }
  }
  return {};
}

// Of the scaffolds whose modules are all imported, the larger ones first; a module is taken from one of them only.
std::unordered_map<ModuleIndex, EntryIndex> Resolver::choose_joint_entries() const {
  std::vector<const Scaffold*> candidates;
  for (const Scaffold& scaffold : schema_.scaffolds) {
    if (std::ranges::all_of(scaffold.modules, [&](ModuleIndex index) { return imports_.is_imported(index); })) {
      candidates.push_back(&scaffold);
    }
  }
  std::ranges::stable_sort(candidates, std::greater{}, [](const Scaffold* one) { return one->modules.size(); });
  std::unordered_map<ModuleIndex, EntryIndex> chosen;
  for (const Scaffold* scaffold : candidates) {
    if (std::ranges::any_of(scaffold->modules, [&](ModuleIndex index) { return chosen.contains(index); })) {
      continue;
    }
    for (std::size_t i = 0; i < scaffold->modules.size(); ++i) {
      chosen.emplace(scaffold->modules[i], scaffold->entries[i]);
    }
  }
  return chosen;
}

void Resolver::add_cached_parts() {
  const std::unordered_map<ModuleIndex, EntryIndex> joint = choose_joint_entries();
  for (const ModuleIndex index : used_) {
    const auto found = joint.find(index);
    CachedPart part;
    part.entry = found == joint.end() ? index : found->second;
    std::int32_t offset = 0;
    for (const TokenRun& run : module(index).text) {
      const auto count = static_cast<std::int32_t>(run.tokens.size());
      part.ranges.push_back({offset, count, run.start});
      offset += count;
    }
    if (!part.ranges.empty()) {
      plan_.cached.push_back(std::move(part));
    }
  }
  std::ranges::sort(plan_.cached, {}, [](const CachedPart& part) { return part.ranges.front().start; });
}

Status Resolver::add_texts(const std::vector<TextChunk>& chunks) {
  TextPlacement placement(schema_, top_imports_);
  if (!chunks.back().empty()) {
    placement.reserve_end();
  }
  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) {
    if (chunks[i].empty()) {
      continue;
    }
    const std::int32_t start = i == 0 ? placement.before_imports() : module(top_imports_[i - 1]).end;
    const Status status = add_text(chunks[i], start, placement);
    if (!status.ok()) {
      return status;
    }
  }
  return add_text_at_end(chunks.back());
}

Status Resolver::add_text(const TextChunk& chunk, std::int64_t start, TextPlacement& placement) {
  const Result<std::vector<TokenId>> tokens = encoder_.encode(chunk, {.after_system = is_after_system(start)});
  if (!tokens.ok()) {
    return tokens.error();
  }
  const auto count = static_cast<std::int64_t>(tokens->size());
  Status status = placement.place(start, count, chunk.location);
  if (status.ok()) {
    add_role_tags(chunk, start, start + count);
    status = add_tokens(*tokens, start, chunk.location);
  }
  return status;
}

// At the schema's length; behind a text in the middle that already reaches past it, if there is nothing but the
// assistant's opening to add.
Status Resolver::add_text_at_end(const TextChunk& chunk) {
  const bool generation_prompt = needs_generation_prompt(chunk);
  if (chunk.empty() && !generation_prompt) {
    return {};
  }
  const std::int64_t start = std::max<std::int64_t>(schema_.positions, used_end());
  const Result<std::vector<TokenId>> tokens =
      encoder_.encode(chunk, {.add_generation_prompt = generation_prompt, .after_system = is_after_system(start)});
  if (!tokens.ok()) {
    return tokens.error();
  }
  add_role_tags(chunk, start, start + static_cast<std::int64_t>(tokens->size()));
  return add_tokens(*tokens, start, chunk.location);
}

std::int64_t Resolver::used_end() const {
  std::int64_t end = 0;
  for (const CachedPart& part : plan_.cached) {
    end = std::max<std::int64_t>(end, part.ranges.back().end());
  }
  for (const NewToken& token : plan_.new_tokens) {
    end = std::max<std::int64_t>(end, token.position + 1);
  }
  return end;
}

// True when what the model reads last is the end of a closed user turn: in the text at the end, or, when there is none,
// in whatever has the highest positions.
bool Resolver::needs_generation_prompt(const TextChunk& last) {
  std::ranges::stable_sort(tags_, {}, [](const UsedTag& tag) { return tag.placed.start; });
  if (!options_.add_generation_prompt) {
    return false;
  }
  if (last.has_role_tags()) {
    return last.ends_after_closed_user();
  }
  if (!last.is_blank || tags_.empty()) {
    return false;
  }
  const PlacedRoleTag& tag = tags_.back().placed;
  return tag.tag.closing && tag.tag.role == Role::kUser && tag.ends_chunk && tag.end >= used_end();
}

// Whether the last role tag in front of `position`, of the modules or of texts placed so far, is </system>.
bool Resolver::is_after_system(std::int64_t position) const {
  const UsedTag* last = nullptr;
  for (const UsedTag& tag : tags_) {
    if (tag.placed.start < position && (last == nullptr || tag.placed.start >= last->placed.start)) {
      last = &tag;
    }
  }
  return last != nullptr && closes_system(last->placed.tag);
}

void Resolver::add_role_tags(const TextChunk& chunk, std::int64_t start, std::int64_t end) {
  for (std::size_t i = 0; i < chunk.pieces.size(); ++i) {
    if (const auto* tag = std::get_if<RoleTag>(&chunk.pieces[i])) {
      tags_.push_back(
          {{*tag, static_cast<std::int32_t>(start), static_cast<std::int32_t>(end), only_whitespace_follows(chunk, i)},
           true});
    }
  }
}

void Resolver::lint_role_tags() {
  RoleState state;
  for (const UsedTag& tag : tags_) {
    const auto oddity = state.apply(tag.placed.tag);
    if (oddity && tag.in_prompt) {
      warn(plan_.warnings, tag.placed.tag.location, *oddity);
    }
  }
}

Status Resolver::add_tokens(const std::vector<TokenId>& tokens, std::int64_t start, SourceLocation location) {
  // Checked before positions are narrowed to 32 bits.
  Status status = check_length(start + static_cast<std::int64_t>(tokens.size()));
  if (!status.ok()) {
    Error error = status.error();
    error.location = location;
    return location.line > 0 ? Status(error) : status;
  }
  auto position = static_cast<std::int32_t>(start);
  for (const TokenId token : tokens) {
    plan_.new_tokens.push_back({token, position++});
  }
  return {};
}

Status Resolver::check_length(std::int64_t end) const {
  if (end + options_.max_tokens <= model_.max_positions) {
    return {};
  }
  return make_error(ErrorCode::kContextLengthExceeded, "the prompt ends at position " + std::to_string(end) +
                                                           " and max_tokens is " + std::to_string(options_.max_tokens) +
                                                           ": together " + std::to_string(end + options_.max_tokens) +
                                                           ", but the model has " +
                                                           std::to_string(model_.max_positions) + " positions");
}

Status Resolver::finish() {
  if (plan_.cached.empty() && plan_.new_tokens.empty()) {
    return make_error_at(ErrorCode::kEmptyPrompt, prompt_.root.location,
                         "the prompt is empty: it has no text, and imports no module that has any");
  }
  if (plan_.new_tokens.empty()) {
    recompute_last_token();
  }
  std::ranges::sort(plan_.new_tokens, {}, &NewToken::position);
  const std::int64_t end = used_end();
  const Status status = check_length(end);
  if (status.ok()) {
    plan_.next_position = static_cast<std::int32_t>(end);
  }
  return status;
}

// Logits come from computing a token, so a prompt of cached text alone computes its last one again.
void Resolver::recompute_last_token() {
  const auto last =
      std::ranges::max_element(plan_.cached, {}, [](const CachedPart& part) { return part.ranges.back().end(); });
  const Entry& entry = schema_.entries[static_cast<std::size_t>(last->entry)];
  CachedRange& range = last->ranges.back();
  plan_.new_tokens.push_back({module(entry.module).text.back().tokens.back(), range.end() - 1});
  plan_.recomputes_last_token = true;
  if (--range.count == 0) {
    last->ranges.pop_back();
  }
  if (last->ranges.empty()) {
    plan_.cached.erase(last);
  }
}

}  // namespace

Result<AssemblyPlan> resolve(std::shared_ptr<const Schema> schema, const PromptDocument& prompt, const ModelText& model,
                             const ResolveOptions& options) {
  assert(schema != nullptr && model.max_positions > 0);
  Result<AssemblyPlan> plan = Resolver(std::move(schema), prompt, model, options).run();
  if (plan.ok()) {
    return plan;
  }
  Error error = plan.error();
  error.param = "prompt";
  return error;
}

}  // namespace promptcached::pml
