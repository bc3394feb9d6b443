#include "core/pml/chunk_encoder.h"

#include <cassert>
#include <span>
#include <utility>

namespace promptcached::pml {
namespace {

// Collects pieces so that neighbouring plain texts become one.
class PieceJoiner final {
 public:
  void add(std::string_view text) {
    if (text.empty()) {
      return;
    }
    if (pieces_.empty() || !std::holds_alternative<std::string>(pieces_.back())) {
      pieces_.emplace_back(std::string());
    }
    std::get<std::string>(pieces_.back()) += text;
  }

  void add(const std::vector<TextPiece>& pieces) {
    for (const TextPiece& piece : pieces) {
      if (const auto* text = std::get_if<std::string>(&piece)) {
        add(*text);
      } else {
        pieces_.push_back(piece);
      }
    }
  }

  const std::vector<TextPiece>& pieces() const { return pieces_; }

 private:
  std::vector<TextPiece> pieces_;
};

}  // namespace

ChunkEncoder::ChunkEncoder(const ModelText& model) : model_(model) { assert(model.tokenizer != nullptr); }

const std::string& ChunkEncoder::text_of(const RoleTag& tag, bool after_system) const {
  const RoleTexts& roles = model_.roles;
  if (after_system && tag.role == Role::kUser && !tag.closing && roles.user_open_after_system) {
    return *roles.user_open_after_system;
  }
  const RoleText& text = tag.role == Role::kSystem ? roles.system
                         : tag.role == Role::kUser ? roles.user
                                                   : roles.assistant;
  return tag.closing ? text.close : text.open;
}

// The chunk with its tags' texts in their places, and the generation prompt.
Result<std::vector<TextPiece>> ChunkEncoder::join(const TextChunk& chunk, const Options& options) const {
  PieceJoiner joiner;
  bool after_system = options.after_system;
  for (const auto& piece : chunk.pieces) {
    const auto* tag = std::get_if<RoleTag>(&piece);
    if (tag == nullptr) {
      joiner.add(std::get<std::string>(piece));
      continue;
    }
    if (tag->role == Role::kSystem && model_.roles.system_unsupported) {
      return make_error_at(ErrorCode::kInvalidPml, tag->location,
                           spelling(*tag) + " cannot be used: " + *model_.roles.system_unsupported);
    }
    joiner.add(model_.tokenizer->split_control_tokens(text_of(*tag, after_system)));
    after_system = closes_system(*tag);
  }
  if (options.add_generation_prompt) {
    joiner.add(model_.tokenizer->split_control_tokens(model_.roles.generation_prompt));
  }
  return joiner.pieces();
}

Result<std::vector<TokenId>> ChunkEncoder::encode(const TextChunk& chunk, const Options& options) const {
  const Result<std::vector<TextPiece>> pieces = join(chunk, options);
  if (!pieces.ok()) {
    return pieces.error();
  }
  std::vector<TokenId> tokens;
  bool continues = chunk.empty() || std::holds_alternative<RoleTag>(chunk.pieces.front());
  for (const TextPiece& piece : *pieces) {
    if (const auto* id = std::get_if<TokenId>(&piece)) {
      tokens.push_back(*id);
      continues = true;
      continue;
    }
    const auto& text = std::get<std::string>(piece);
    Result<std::vector<TokenId>> encoded =
        continues ? model_.tokenizer->encode_continuation(text, options.allow_special_tokens)
                  : encode_text(text, options.allow_special_tokens);
    if (!encoded.ok()) {
      Error error = encoded.error();
      error.location = chunk.location;
      return error;
    }
    tokens.insert(tokens.end(), encoded->begin(), encoded->end());
  }
  return tokens;
}

Result<std::vector<TokenId>> ChunkEncoder::encode_text(std::string_view text, bool allow_special_tokens) const {
  if (text.empty()) {
    return std::vector<TokenId>{};
  }
  return model_.tokenizer->encode(text, allow_special_tokens);
}

std::optional<std::string> ChunkEncoder::spelled_control_token(std::string_view text) const {
  for (const TextPiece& piece : model_.tokenizer->split_control_tokens(text)) {
    if (const auto* id = std::get_if<TokenId>(&piece)) {
      return model_.tokenizer->decode(std::span(id, 1), /*skip_special=*/false);
    }
  }
  return std::nullopt;
}

}  // namespace promptcached::pml
