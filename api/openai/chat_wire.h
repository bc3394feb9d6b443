// POST /v1/chat/completions on the wire.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/http_types.h"
#include "api/openai/fields.h"
#include "api/wire/fidelity.h"
#include "core/base/status.h"
#include "core/tokenizer/chat_template.h"

namespace promptcached::api {

struct WireChat : OpenAiFields {
  // What the chat template is given (ChatTemplate::render_context): messages with their content as one text each, and
  // arguments of tool calls as objects, as transformers has them.
  nlohmann::ordered_json context;
  bool has_tools = false;                            // and may call them
  std::vector<nlohmann::ordered_json> forced_tools;  // one of them must be called; empty: none need be
  // The same conversation as a PML prompt, when it names modules: in `prompt_cache`, or as parts of a message.
  std::optional<std::string> pml;
  Fidelity fidelity = Fidelity::kModular;  // of that
};

// `chat_template` null: the model has none. Errors: kUnsupportedMediaType, kInvalidJson, kInvalidField.
Result<WireChat> read_chat(const HttpRequest& request, const ChatTemplate* chat_template);

// The fields of such a body, with those that are refused in any case.
JsonFields chat_fields();

}  // namespace promptcached::api
