// Forced calls of tools: an answer that is one call, in the syntax that the model's template teaches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/openai/tool_calls.h"
#include "api/wire/ordered.h"
#include "core/guide/constraint.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::api {

// `tools`: of which one is to be called, as OpenAI's clients write them: {"type": "function", "function": {"name": …,
// "parameters": …}}. `syntax`: any but kNone.
guide::Constraint forced_call(ToolSyntax syntax, std::string_view chat_template, const Tokenizer& tokenizer,
                              const std::vector<OrderedJson>& tools);

}  // namespace promptcached::api
