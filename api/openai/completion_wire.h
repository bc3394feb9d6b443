// POST /v1/completions on the wire.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "api/http_types.h"
#include "api/openai/fields.h"
#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::api {

using WirePrompt = std::variant<std::string, std::vector<TokenId>>;  // ids not yet checked against the vocabulary

struct WireCompletion : OpenAiFields {
  std::vector<WirePrompt> prompts;  // at least one
  bool echo = false;
};

// Errors: kUnsupportedMediaType, kInvalidJson, kInvalidField.
Result<WireCompletion> read_completion(const HttpRequest& request);

// The fields of such a body.
JsonFields completion_fields();

}  // namespace promptcached::api
