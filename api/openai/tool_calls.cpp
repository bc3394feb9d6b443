#include "api/openai/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace promptcached::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHermesOpen = "<tool_call>";
constexpr std::string_view kHermesClose = "</tool_call>";
constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
constexpr std::string_view kMistralArguments = "[ARGS]";
constexpr std::string_view kLlamaOpen = "<|python_tag|>";
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  const std::size_t end = text.find_last_not_of(kBlanks);
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

std::string_view opener(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
      return kHermesOpen;
    case ToolSyntax::kMistral:
      return kMistralOpen;
    case ToolSyntax::kLlama:
      return kLlamaOpen;
    case ToolSyntax::kNone:
      break;
  }
  return {};
}

// Where `text` has the opener, or may have the beginning of one at its end.
std::size_t find_opener(std::string_view text, std::string_view open) {
  if (const std::size_t at = text.find(open); at != std::string_view::npos) {
    return at;
  }
  for (std::size_t length = std::min(text.size(), open.size() - 1); length > 0; --length) {
    if (text.ends_with(open.substr(0, length))) {
      return text.size() - length;
    }
  }
  return text.size();
}

std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) {
    return std::nullopt;
  }
  const Json arguments = json.contains("arguments") ? json["arguments"] : json.value("parameters", Json::object());
  return ToolCall{json["name"].get<std::string>(),
                  arguments.is_string() ? arguments.get<std::string>() : arguments.dump()};
}

// One call, or a list of them; false when it is neither.
bool add_calls(std::string_view text, std::vector<ToolCall>& calls) {
  const Json json = Json::parse(text, nullptr, false);
  std::vector<ToolCall> found;
  for (const Json& item : json.is_array() ? json : Json::array({json})) {
    std::optional<ToolCall> call = call_of(item);
    if (!call) {
      return false;
    }
    found.push_back(std::move(*call));
  }
  std::move(found.begin(), found.end(), std::back_inserter(calls));
  return !found.empty();
}

ToolCallParser::End parse_hermes(std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  ToolCallParser::End end;
  for (;;) {
    const std::size_t open = text.find(kHermesOpen);
    end.content += text.substr(0, open);
    if (open == kNone) {
      break;
    }
    text.remove_prefix(open);
    // The last one may lack its end: a model may stop with it.
    const std::size_t close = text.find(kHermesClose);
    const std::string_view block = text.substr(0, close == kNone ? kNone : close + kHermesClose.size());
    const std::size_t size = close == kNone ? kNone : close - kHermesOpen.size();
    if (!add_calls(trimmed(text.substr(kHermesOpen.size(), size)), end.calls)) {
      end.content += block;
    }
    text.remove_prefix(block.size());
  }
  if (!end.calls.empty()) {
    end.content = trimmed(end.content);
  }
  return end;
}

ToolCallParser::End parse_mistral(std::string_view text) {
  ToolCallParser::End end;
  std::string_view rest = text;
  while (rest.starts_with(kMistralOpen)) {
    rest.remove_prefix(kMistralOpen.size());
    const std::string_view part = rest.substr(0, rest.find(kMistralOpen));
    const std::size_t arguments = part.find(kMistralArguments);
    if (arguments == std::string_view::npos) {
      if (!add_calls(trimmed(part), end.calls)) {
        return {std::string(text), {}};
      }
    } else {
      const std::string_view json = trimmed(part.substr(arguments + kMistralArguments.size()));
      if (!Json::accept(json)) {
        return {std::string(text), {}};
      }
      end.calls.push_back({std::string(trimmed(part.substr(0, arguments))), std::string(json)});
    }
    rest.remove_prefix(part.size());
  }
  end.content = rest;
  return end;
}

// Calls are separated by "; ", which may stand in their arguments as well: each is as long as it must be.
ToolCallParser::End parse_llama(std::string_view text) {
  ToolCallParser::End end;
  std::string_view rest = trimmed(text);
  if (rest.starts_with(kLlamaOpen)) {
    rest = trimmed(rest.substr(kLlamaOpen.size()));
  }
  while (!rest.empty()) {
    std::size_t size = rest.find(';');
    while (size != std::string_view::npos && !Json::accept(rest.substr(0, size))) {
      size = rest.find(';', size + 1);
    }
    if (!add_calls(rest.substr(0, size), end.calls)) {
      return {std::string(text), {}};
    }
    rest = size == std::string_view::npos ? std::string_view() : trimmed(rest.substr(size + 1));
  }
  return end.calls.empty() ? ToolCallParser::End{std::string(text), {}} : end;
}

}  // namespace

ToolSyntax tool_syntax_of(std::string_view chat_template) {
  const auto has = [chat_template](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  if (has(kMistralOpen)) {
    return ToolSyntax::kMistral;
  }
  if (has(kHermesOpen)) {
    return ToolSyntax::kHermes;
  }
  if (has(kLlamaOpen) || has("\"parameters\": ")) {
    return ToolSyntax::kLlama;
  }
  return ToolSyntax::kNone;
}

std::optional<std::string> tool_control_text(ToolSyntax syntax, const Tokenizer& tokenizer, TokenId id) {
  for (const std::string_view text : {opener(syntax), syntax == ToolSyntax::kMistral ? kMistralArguments : ""}) {
    if (!text.empty() && tokenizer.token_to_id(text) == id &&
        tokenizer.decode({&id, 1}, /*skip_special=*/true).empty()) {
      return std::string(text);
    }
  }
  return std::nullopt;
}

bool ToolCallParser::may_begin_call(std::string_view text) const {
  const std::string_view start = trimmed(text);
  return syntax_ == ToolSyntax::kLlama && !has_content_ && (start.empty() || start.front() == '{');
}

std::string ToolCallParser::push(std::string_view text) {
  held_ += text;
  if (may_begin_call(held_)) {
    return {};
  }
  const std::string_view open = opener(syntax_);
  std::string content = held_.substr(0, open.empty() ? held_.size() : find_opener(held_, open));
  held_.erase(0, content.size());
  has_content_ = has_content_ || !trimmed(content).empty();
  return content;
}

ToolCallParser::End ToolCallParser::finish() {
  const std::string held = std::exchange(held_, {});
  switch (syntax_) {
    case ToolSyntax::kHermes:
      return parse_hermes(held);
    case ToolSyntax::kMistral:
      return parse_mistral(held);
    case ToolSyntax::kLlama:
      return parse_llama(held);
    case ToolSyntax::kNone:
      break;
  }
  return {held, {}};
}

}  // namespace promptcached::api
