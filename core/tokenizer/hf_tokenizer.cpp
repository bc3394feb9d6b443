#include "core/tokenizer/hf_tokenizer.h"

#include <stdexcept>

namespace promptcached {
namespace {

std::optional<TokenId> id_if_any(std::int32_t id) { return id < 0 ? std::nullopt : std::optional<TokenId>(id); }

std::uint32_t special_flag(bool allow_special) { return allow_special ? std::uint32_t{kPcHfAllowSpecial} : 0; }

}  // namespace

Result<std::shared_ptr<const HfTokenizer>> HfTokenizer::create(std::string_view json, const TokenizerConfig& config) {
  PcHfTokenizer* raw = nullptr;
  HfBytes message;
  const PcHfStatus status = pc_hf_tokenizer_new(json.data(), json.size(), &raw, message.out());
  if (status != kPcHfOk) {
    return hf_error(status, message, "tokenizer");
  }
  return std::shared_ptr<const HfTokenizer>(new HfTokenizer(HfTokenizerHandle(raw), config));
}

HfTokenizer::HfTokenizer(HfTokenizerHandle handle, const TokenizerConfig& config)
    : handle_(std::move(handle)), bos_id_(find_bos(config)), placeholder_id_(find_placeholder(config)) {}

Result<std::vector<TokenId>> HfTokenizer::encode(std::string_view text, bool allow_special) const {
  return encode_with(text, special_flag(allow_special));
}

Result<std::vector<TokenId>> HfTokenizer::encode_continuation(std::string_view text, bool allow_special) const {
  return encode_with(text, special_flag(allow_special) | kPcHfContinuation);
}

Result<std::vector<TokenId>> HfTokenizer::encode_with(std::string_view text, std::uint32_t flags) const {
  HfIds ids;
  HfBytes message;
  const PcHfStatus status = pc_hf_encode(handle_.get(), text.data(), text.size(), flags, ids.out(), message.out());
  if (status != kPcHfOk) {
    return hf_error(status, message, "tokenizer");
  }
  return std::vector<TokenId>(ids.begin(), ids.end());
}

std::string HfTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  return to_valid_utf8(decode_bytes(ids, skip_special));
}

std::string HfTokenizer::decode_bytes(std::span<const TokenId> ids, bool skip_special) const {
  HfBytes bytes;
  HfBytes message;
  // A failure could come from a decoder in tokenizer.json alone, and none of those refuses any tokens.
  pc_hf_decode(handle_.get(), ids.data(), ids.size(), skip_special ? 1 : 0, bytes.out(), message.out());
  return to_string(bytes);
}

std::vector<TextPiece> HfTokenizer::split_control_tokens(std::string_view text) const {
  HfPieces found;
  HfBytes message;
  if (pc_hf_split(handle_.get(), text.data(), text.size(), found.out(), message.out()) != kPcHfOk) {
    return {std::string(text)};  // not UTF-8: no control token is spelled in it
  }
  std::vector<TextPiece> pieces;
  for (const PcHfPiece& piece : found) {
    if (piece.id >= 0) {
      pieces.emplace_back(TokenId{piece.id});
    } else {
      pieces.emplace_back(std::string(text.substr(piece.begin, piece.end - piece.begin)));
    }
  }
  return pieces;
}

std::vector<std::pair<std::size_t, std::size_t>> HfTokenizer::control_token_spans(std::string_view text) const {
  HfPieces found;
  HfBytes message;
  std::vector<std::pair<std::size_t, std::size_t>> spans;
  if (pc_hf_split(handle_.get(), text.data(), text.size(), found.out(), message.out()) == kPcHfOk) {
    for (const PcHfPiece& piece : found) {
      if (piece.id >= 0) {
        spans.emplace_back(piece.begin, piece.end);
      }
    }
  }
  return spans;
}

std::optional<TokenId> HfTokenizer::token_to_id(std::string_view token) const {
  return id_if_any(pc_hf_token_to_id(handle_.get(), token.data(), token.size()));
}

std::int64_t HfTokenizer::vocab_size() const { return pc_hf_vocab_size(handle_.get()); }

// What tokenizer_config.json says outright wins: transformers rebuilds the post-processor from it.
std::optional<TokenId> HfTokenizer::find_bos(const TokenizerConfig& config) const {
  if (config.add_bos_token == false) {
    return std::nullopt;
  }
  const std::optional<TokenId> added = id_if_any(pc_hf_bos_id(handle_.get()));
  if (added || !config.add_bos_token) {
    return added;
  }
  return token_to_id(config.special_token("bos_token"));
}

TokenId HfTokenizer::find_placeholder(const TokenizerConfig& config) const {
  if (const auto id = token_to_id(config.special_token("unk_token"))) {
    return *id;
  }
  if (const auto id = id_if_any(pc_hf_unk_id(handle_.get()))) {
    return *id;
  }
  for (const char* name : {"pad_token", "eos_token"}) {
    if (const auto id = token_to_id(config.special_token(name))) {
      return *id;
    }
  }
  for (const char* spelling : {"<unk>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
    if (const auto id = token_to_id(spelling)) {
      return *id;
    }
  }
  return 0;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const checkpoint::ModelFiles& files) {
  constexpr const char* kDocument = "tokenizer.json";
  const TokenizerConfig config = read_tokenizer_config(files);
  auto tokenizer = HfTokenizer::create(files.read(kDocument), config);
  if (!tokenizer) {
    throw std::runtime_error(files.where(kDocument) + ": " + tokenizer.error().message);
  }
  return std::move(tokenizer).value();
}

}  // namespace promptcached
