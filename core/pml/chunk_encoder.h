// ChunkEncoder: a text chunk to token ids.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/pml/chunks.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

// Role texts are the only source of control tokens: their control tokens are inserted as ids, and what is plain in them
// is joined to the text beside it before that is tokenised. Text that begins with a role text, or stands behind a
// control token, is tokenised as the continuation that it is in a rendered conversation; other text as if it stood
// alone. BOS is not the encoder's business.
class ChunkEncoder final {
 public:
  // `model` must outlive the encoder.
  explicit ChunkEncoder(const ModelText& model);

  struct Options {
    bool allow_special_tokens = false;   // the chunk's own text may spell control tokens
    bool add_generation_prompt = false;  // the assistant's opening goes behind the chunk
    bool after_system = false;           // the last role tag in front of the chunk is </system>
  };

  // Error kInvalidPml at a <system> tag when the model has no system role.
  Result<std::vector<TokenId>> encode(const TextChunk& chunk, const Options& options) const;

  // Plain text: an argument, or what fills a slot while its module is encoded.
  Result<std::vector<TokenId>> encode_text(std::string_view text, bool allow_special_tokens) const;

  // The first control token that `text` spells, as it is spelled; nullopt if there is none.
  std::optional<std::string> spelled_control_token(std::string_view text) const;

 private:
  const std::string& text_of(const RoleTag& tag, bool after_system) const;
  Result<std::vector<TextPiece>> join(const TextChunk& chunk, const Options& options) const;

  const ModelText& model_;
};

}  // namespace promptcached::pml
