// WordTokenizer: a Tokenizer without a model, for tests that count tokens by eye.
//
// A token is a word (letters, digits, '_' and everything outside ASCII) with the one space before it, if any; every
// other character is a token of its own. So "Hello, world" is "Hello" "," " world", and text that is tokenised in two
// pieces gives other tokens than the same text in one ("foo" + "bar" against "foobar"). Ids are handed out in order of
// first use, after those of the control tokens, and lead back to their text.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace promptcached::fakes {

class WordTokenizer final : public Tokenizer {
 public:
  struct Options {
    bool adds_bos = false;
    std::vector<std::string> control_tokens = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
  };

  static constexpr TokenId kUnknown = 0;
  static constexpr TokenId kBos = 1;

  WordTokenizer() : WordTokenizer(Options{}) {}
  explicit WordTokenizer(Options options) : options_(std::move(options)) {
    for (const std::string& token : options_.control_tokens) {
      intern(token);
    }
  }

  Result<std::vector<TokenId>> encode(std::string_view text, bool allow_special = false) const override {
    const std::lock_guard lock(mutex_);  // ids are handed out while encoding
    std::vector<TokenId> ids;
    if (!allow_special) {
      encode_plain(text, ids);
      return ids;
    }
    for (const TextPiece& piece : split_control_tokens(text)) {
      if (const auto* id = std::get_if<TokenId>(&piece)) {
        ids.push_back(*id);
      } else {
        encode_plain(std::get<std::string>(piece), ids);
      }
    }
    return ids;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const override {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const TokenId id : ids) {
      if (!skip_special || !is_control(id)) {
        text += texts_.at(static_cast<std::size_t>(id));
      }
    }
    return text;
  }

  std::vector<TextPiece> split_control_tokens(std::string_view text) const override {
    std::vector<TextPiece> pieces;
    while (!text.empty()) {
      const auto [offset, id] = find_control_token(text);
      if (offset > 0) {
        pieces.emplace_back(std::string(text.substr(0, offset)));
      }
      text.remove_prefix(std::min(offset, text.size()));
      if (id >= 0) {
        pieces.emplace_back(id);
        text.remove_prefix(options_.control_tokens[static_cast<std::size_t>(id)].size());
      }
    }
    return pieces;
  }

  std::vector<std::pair<std::size_t, std::size_t>> control_token_spans(std::string_view text) const override {
    std::vector<std::pair<std::size_t, std::size_t>> spans;
    for (std::size_t at = 0;;) {
      const auto [offset, id] = find_control_token(text.substr(at));
      if (id < 0) {
        return spans;
      }
      const std::size_t size = options_.control_tokens[static_cast<std::size_t>(id)].size();
      spans.emplace_back(at + offset, at + offset + size);
      at += offset + size;
    }
  }

  std::optional<TokenId> token_to_id(std::string_view token) const override {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(token);
    // A control token's spelling may also have been met as ordinary text, never under the same key: see encode_plain.
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<TokenId> bos_id() const override { return options_.adds_bos ? std::optional(kBos) : std::nullopt; }
  TokenId placeholder_id() const override { return kUnknown; }
  std::int64_t vocab_size() const override {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(texts_.size());
  }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (static_cast<unsigned char>(c) & 0x80) != 0;
  }

  bool is_control(TokenId id) const { return static_cast<std::size_t>(id) < options_.control_tokens.size(); }

  TokenId intern(std::string_view token) const {
    const auto [entry, added] = ids_.emplace(token, static_cast<TokenId>(texts_.size()));
    if (added) {
      texts_.emplace_back(token);
    }
    return entry->second;
  }

  // No word or single character spells a control token, so ordinary text never meets one's id.
  void encode_plain(std::string_view text, std::vector<TokenId>& ids) const {
    std::size_t at = 0;
    while (at < text.size()) {
      std::size_t end = at + 1;
      const bool spaced_word = text[at] == ' ' && end < text.size() && is_word(text[end]);
      if (spaced_word || is_word(text[at])) {
        while (end < text.size() && is_word(text[end])) {
          ++end;
        }
      }
      ids.push_back(intern(text.substr(at, end - at)));
      at = end;
    }
  }

  // Offset and id of the first control token; the text's end and -1 when there is none.
  std::pair<std::size_t, TokenId> find_control_token(std::string_view text) const {
    std::pair<std::size_t, TokenId> first = {text.size(), -1};
    for (std::size_t i = 0; i < options_.control_tokens.size(); ++i) {
      const std::size_t offset = text.find(options_.control_tokens[i]);
      if (offset < first.first) {
        first = {offset, static_cast<TokenId>(i)};
      }
    }
    return first;
  }

  Options options_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, TokenId, std::less<>> ids_;
  mutable std::vector<std::string> texts_;
};

}  // namespace promptcached::fakes
