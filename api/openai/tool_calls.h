// Tool calls in generated text: the syntaxes that chat templates teach their models.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace promptcached::api {

enum class ToolSyntax {
  kNone,
  kHermes,   // <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number, text around them (Hermes, Qwen)
  kLlama,    // {"name": …, "parameters": {…}} as the whole answer, several with ';' between (Llama 3)
  kMistral,  // [TOOL_CALLS] [{"name": …, "arguments": {…}}], or [TOOL_CALLS]name[ARGS]{…} (Mistral)
};

// Told by what the template writes; kNone when it has no calls of a known form.
ToolSyntax tool_syntax_of(std::string_view chat_template);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

// Takes an answer's text as it comes, and tells what of it is content and what calls tools. What is no valid call after
// all is content: nothing of the answer is lost.
class ToolCallParser final {
 public:
  explicit ToolCallParser(ToolSyntax syntax = ToolSyntax::kNone) : syntax_(syntax) {}

  // The content that is certain now. What may be (part of) a call is held back.
  std::string push(std::string_view text);

  struct End {
    std::string content;
    std::vector<ToolCall> calls;
  };
  End finish();

 private:
  bool may_begin_call(std::string_view text) const;

  ToolSyntax syntax_;
  std::string held_;
  bool has_content_ = false;  // something else than blanks was given out
};

// Control tokens of a call have no text when they are generated, but must reach the parser: what `id` spells, if it is
// one of those.
std::optional<std::string> tool_control_text(ToolSyntax syntax, const Tokenizer& tokenizer, TokenId id);

}  // namespace promptcached::api
