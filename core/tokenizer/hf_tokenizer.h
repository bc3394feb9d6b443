// HfTokenizer: the Tokenizer of a Hugging Face `tokenizer.json`.
#pragma once

#include "core/tokenizer/hf_call.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/tokenizer_config.h"

namespace promptcached {

class HfTokenizer final : public Tokenizer {
 public:
  // `json` is the text of tokenizer.json. Error kInternal when it is not one.
  static Result<std::shared_ptr<const HfTokenizer>> create(std::string_view json, const TokenizerConfig& config);

  Result<std::vector<TokenId>> encode(std::string_view text, bool allow_special = false) const override;
  Result<std::vector<TokenId>> encode_continuation(std::string_view text, bool allow_special = false) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const override;
  std::string decode_bytes(std::span<const TokenId> ids, bool skip_special = true) const override;
  std::vector<TextPiece> split_control_tokens(std::string_view text) const override;
  std::vector<std::pair<std::size_t, std::size_t>> control_token_spans(std::string_view text) const override;
  std::optional<TokenId> token_to_id(std::string_view token) const override;
  std::optional<TokenId> bos_id() const override { return bos_id_; }
  TokenId placeholder_id() const override { return placeholder_id_; }
  std::int64_t vocab_size() const override;

 private:
  HfTokenizer(HfTokenizerHandle handle, const TokenizerConfig& config);

  Result<std::vector<TokenId>> encode_with(std::string_view text, std::uint32_t flags) const;
  std::optional<TokenId> find_bos(const TokenizerConfig& config) const;
  TokenId find_placeholder(const TokenizerConfig& config) const;

  HfTokenizerHandle handle_;  // immutable: every call takes it as const
  std::optional<TokenId> bos_id_;
  TokenId placeholder_id_;
};

}  // namespace promptcached
