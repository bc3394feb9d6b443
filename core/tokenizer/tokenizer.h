// Tokenizer: text to token ids and back, for any Hugging Face `tokenizer.json`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/model_files.h"
#include "core/tokenizer/utf8_assembler.h"

namespace promptcached {

using TokenId = std::int32_t;

// A stretch of template text: a control token by id, or plain text.
using TextPiece = std::variant<TokenId, std::string>;

// Thread-safe: all methods are const and may be called from any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Token ids of `text`, with no BOS/EOS added. Text that spells a control token (`<|im_end|>`, `</s>`) is encoded as
  // ordinary text unless `allow_special`. `text` must be valid UTF-8 (callers check; invalid bytes give kInvalidField).
  virtual Result<std::vector<TokenId>> encode(std::string_view text, bool allow_special = false) const = 0;

  // As encode(), for text that stands behind a control token of the same prompt instead of at its start: some
  // SentencePiece-like tokenizers put a space in front of the start of a prompt alone (Metaspace, scheme "first").
  virtual Result<std::vector<TokenId>> encode_continuation(std::string_view text, bool allow_special = false) const {
    return encode(text, allow_special);
  }

  // Text of `ids`; control tokens are left out when `skip_special`. Incomplete UTF-8 shows as U+FFFD, one for each
  // maximal part of a character. Ids outside the vocabulary give nothing.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special = true) const = 0;

  // The same before U+FFFD is put in: the bytes that `ids` stand for, which may start or end within a character.
  // To be overridden by every tokenizer that has tokens for parts of characters.
  virtual std::string decode_bytes(std::span<const TokenId> ids, bool skip_special = true) const {
    return decode(ids, skip_special);
  }

  // Splits `text` at every spelled control token (added tokens marked special): "<|im_start|>user\n" ->
  // {id of <|im_start|>, "user\n"}. Used for role texts, which are trusted.
  virtual std::vector<TextPiece> split_control_tokens(std::string_view text) const = 0;

  // Where control tokens are spelled in `text`, in bytes [first, second), blanks that a token takes in included.
  virtual std::vector<std::pair<std::size_t, std::size_t>> control_token_spans(std::string_view text) const = 0;

  // The id of a token by its exact spelling in the vocabulary (added tokens included).
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;

  // The BOS id if the tokenizer's post-processor (or `add_bos_token` in tokenizer_config.json) puts one in front.
  virtual std::optional<TokenId> bos_id() const = 0;

  // The id that fills parameter slots while a module is encoded: the unknown token; a tokenizer without one uses its
  // padding, then its end-of-text token.
  virtual TokenId placeholder_id() const = 0;

  virtual std::int64_t vocab_size() const = 0;  // added tokens included
};

// Reads `tokenizer.json` and, where there, `tokenizer_config.json` of a Hugging Face directory.
// Throws std::runtime_error naming the file when it is missing or unreadable (start-up only).
std::shared_ptr<const Tokenizer> load_tokenizer(const checkpoint::ModelFiles& files);

// Turns a stream of generated ids into text deltas. Never splits a character, never loses or doubles a space: the
// joined deltas equal decode(context + ids) minus decode(context). One per sequence, not thread-safe.
class StreamDecoder final {
 public:
  // `context`: the prompt's last tokens (a dozen is plenty), so that a leading space of the first token is kept. If it
  // ends within a character, the first delta holds that character whole.
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, std::span<const TokenId> context);

  // The text that `id` completes; empty while a character is incomplete.
  std::string push(TokenId id);
  // Whatever is left at the end of generation: an incomplete tail shows as one U+FFFD, as in the full decode.
  std::string finish();
  // True while pushed tokens have text that push() has not given out yet.
  bool pending() const { return pushed_bytes_ && assembler_.pending(); }

 private:
  bool ever_gives_text(TokenId id) const;
  void trim_window();

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TokenId> window_;   // the latest tokens, context included: what the next one is decoded behind
  std::size_t window_bytes_ = 0;  // size of decode_bytes(window_)
  Utf8Assembler assembler_;       // holds the bytes of an incomplete character
  bool pushed_bytes_ = false;     // assembler_ has seen bytes of pushed tokens, not only of the context
};

}  // namespace promptcached
