#include "api/openai/forced_call.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace promptcached::api {
namespace {

std::string json_text(std::string_view text) { return OrderedJson(text).dump(); }

// A text of the answer as a Lark grammar has it: control tokens by their ids.
std::string written(const Tokenizer& tokenizer, std::string_view text) {
  const std::optional<TokenId> id = tokenizer.token_to_id(text);
  const bool is_control = id && tokenizer.decode({&*id, 1}, /*skip_special=*/true).empty();
  return is_control ? "<[" + std::to_string(*id) + "]>" : json_text(text);
}

// What the arguments must be: an object, also where the schema forgets to say so.
OrderedJson arguments_schema(const OrderedJson& function) {
  OrderedJson schema = function.value("parameters", OrderedJson(nullptr));
  if (!schema.is_object()) {
    schema = {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
  }
  constexpr std::array<const char*, 5> kSayWhatItIs = {"type", "$ref", "anyOf", "allOf", "oneOf"};
  if (std::none_of(kSayWhatItIs.begin(), kSayWhatItIs.end(), [&](const char* key) { return schema.contains(key); })) {
    schema["type"] = "object";
  }
  if (!schema.contains("x-guidance")) {
    schema["x-guidance"] = {{"whitespace_pattern", " "}};  // as for response_format
  }
  return schema;
}

// In front of a call's arguments and behind them, as Lark.
struct Frame {
  std::string before;
  std::string after;
};

Frame json_frame(const std::string& name, std::string_view arguments_key) {
  return {json_text("{\"name\": " + json_text(name) + ", \"" + std::string(arguments_key) + "\": "), json_text("}")};
}

Frame frame_of(ToolSyntax syntax, bool with_args, const Tokenizer& tokenizer, const std::string& name) {
  switch (syntax) {
    case ToolSyntax::kMistral: {
      const std::string open = written(tokenizer, "[TOOL_CALLS]");
      if (with_args) {
        return {open + " " + json_text(name) + " " + written(tokenizer, "[ARGS]"), ""};
      }
      const Frame call = json_frame(name, "arguments");
      return {open + " (\" \")? \"[\" " + call.before, call.after + " \"]\""};
    }
    case ToolSyntax::kHermes: {
      const Frame call = json_frame(name, "arguments");
      return {written(tokenizer, "<tool_call>") + " \"\\n\" " + call.before,
              call.after + " \"\\n\" " + written(tokenizer, "</tool_call>")};
    }
    case ToolSyntax::kLlama:
    case ToolSyntax::kNone:
      break;
  }
  return json_frame(name, "parameters");
}

}  // namespace

guide::Constraint forced_call(ToolSyntax syntax, std::string_view chat_template, const Tokenizer& tokenizer,
                              const std::vector<OrderedJson>& tools) {
  const bool with_args = chat_template.find("[ARGS]") != std::string_view::npos;
  std::string start = "start: ";
  std::string rules;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const OrderedJson& function = tools[i]["function"];
    const Frame frame = frame_of(syntax, with_args, tokenizer, function.value("name", ""));
    const std::string number = std::to_string(i);
    start += (i == 0 ? "call" : " | call") + number;
    // Each schema stands alone, so that the references within it mean what they say.
    rules += "\ncall" + number + ": " + frame.before + " arguments" + number + " " + frame.after;
    rules += "\narguments" + number + ": %json " + arguments_schema(function).dump();
  }
  return {guide::Syntax::kLark, start + rules + "\n", "tools"};
}

}  // namespace promptcached::api
