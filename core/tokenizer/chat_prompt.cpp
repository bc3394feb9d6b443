#include "core/tokenizer/chat_prompt.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace promptcached {
namespace {

using Json = nlohmann::ordered_json;

// Stand in for spelled control tokens while the template is rendered: noncharacters, which no text needs. A text that
// has them all the same has them replaced in the same way.
constexpr std::string_view kOpen = "\uFDD0";
constexpr std::string_view kClose = "\uFDD1";

// Hides what must stay text from the search for the template's own control tokens.
class Disguise final {
 public:
  explicit Disguise(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  bool used() const { return !hidden_.empty(); }

  void apply(Json& value) {
    if (value.is_string()) {
      value = apply_to_text(value.get_ref<const std::string&>());
    } else if (value.is_array()) {
      for (Json& element : value) {
        apply(element);
      }
    } else if (value.is_object()) {
      Json renamed = Json::object();
      for (auto& [key, member] : value.items()) {
        apply(member);
        renamed[apply_to_text(key)] = std::move(member);
      }
      value = std::move(renamed);
    }
  }

  std::string undo(std::string_view text) const {
    std::string plain;
    for (;;) {
      const std::size_t open = text.find(kOpen);
      plain += text.substr(0, open);
      if (open == std::string_view::npos) {
        return plain;
      }
      text.remove_prefix(open + kOpen.size());
      std::size_t index = 0;
      const char* const digits_end = std::from_chars(text.data(), text.data() + text.size(), index).ptr;
      text.remove_prefix(static_cast<std::size_t>(digits_end - text.data()));
      if (text.starts_with(kClose) && index < hidden_.size()) {  // else a template has cut it apart
        plain += hidden_[index];
        text.remove_prefix(kClose.size());
      }
    }
  }

 private:
  std::string apply_to_text(const std::string& text) {
    std::string disguised;
    std::size_t at = 0;
    for (const auto& [begin, end] : tokenizer_.control_token_spans(text)) {
      disguised += hide_marks(std::string_view(text).substr(at, begin - at));
      disguised += hide(text.substr(begin, end - begin));
      at = end;
    }
    return disguised + hide_marks(std::string_view(text).substr(at));
  }

  std::string hide_marks(std::string_view text) {
    std::string result;
    while (!text.empty()) {
      const std::size_t mark = std::min(text.find(kOpen), text.find(kClose));
      result += text.substr(0, mark);
      if (mark == std::string_view::npos) {
        break;
      }
      result += hide(std::string(text.substr(mark, kOpen.size())));
      text.remove_prefix(mark + kOpen.size());
    }
    return result;
  }

  std::string hide(std::string text) {
    hidden_.push_back(std::move(text));
    return std::string(kOpen) + std::to_string(hidden_.size() - 1) + std::string(kClose);
  }

  const Tokenizer& tokenizer_;
  std::vector<std::string> hidden_;
};

// Piece by piece, as the tokenizer itself cuts a text at control tokens.
Result<std::vector<TokenId>> encode_disguised(const Tokenizer& tokenizer, std::string_view rendered,
                                              const Disguise& disguise) {
  std::vector<TokenId> ids;
  for (const TextPiece& piece : tokenizer.split_control_tokens(rendered)) {
    if (const auto* const id = std::get_if<TokenId>(&piece)) {
      ids.push_back(*id);
      continue;
    }
    const std::string text = disguise.undo(std::get<std::string>(piece));
    const Result<std::vector<TokenId>> encoded =
        ids.empty() ? tokenizer.encode(text) : tokenizer.encode_continuation(text);
    if (!encoded) {
      return encoded.error();
    }
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }
  return ids;
}

Error about_messages(Error error) {
  error.param = "messages";
  return error;
}

}  // namespace

Result<std::vector<TokenId>> encode_text(const Tokenizer& tokenizer, std::string_view text, bool add_bos) {
  Result<std::vector<TokenId>> ids = tokenizer.encode(text, /*allow_special=*/true);
  const std::optional<TokenId> bos = tokenizer.bos_id();
  if (ids && add_bos && bos && (ids->empty() || ids->front() != *bos)) {
    ids->insert(ids->begin(), *bos);
  }
  return ids;
}

Result<std::vector<TokenId>> encode_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer, Json context) {
  Disguise disguise(tokenizer);
  disguise.apply(context);
  const Result<std::string> rendered = chat_template.render_context(context.dump());
  if (!rendered) {
    return about_messages(rendered.error());
  }
  Result<std::vector<TokenId>> ids = disguise.used() ? encode_disguised(tokenizer, *rendered, disguise)
                                                     : tokenizer.encode(*rendered, /*allow_special=*/true);
  if (!ids) {
    return about_messages(ids.error());
  }
  if (ids->empty()) {
    return make_error(ErrorCode::kEmptyPrompt, "the chat template makes an empty prompt of these messages", "messages");
  }
  return ids;
}

}  // namespace promptcached
