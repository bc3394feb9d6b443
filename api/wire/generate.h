// POST /generate on the wire: what a client may say, before anything is known about the model or the schema.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/http_types.h"
#include "api/json_reader.h"
#include "api/wire/fidelity.h"
#include "core/base/status.h"
#include "core/engine/generate_request.h"
#include "core/guide/constraint.h"

namespace promptcached::api {

// Every field within the limits of docs/api.md. Sampling defaults are those of engine::SamplingOptions.
struct WireGenerate {
  std::string prompt;                      // PML
  std::optional<std::int32_t> max_tokens;  // not given: kDefaultMaxTokens, or what the context leaves
  engine::SamplingOptions sampling;        // logit_bias: ids not yet checked against the vocabulary
  std::vector<std::string> stop;
  std::int32_t top_logprobs = 0;
  bool stream = true;
  bool ignore_eos = false;
  bool add_generation_prompt = true;
  bool echo = false;
  Fidelity fidelity = Fidelity::kModular;
  bool bypass_cache = false;
  std::optional<guide::Constraint> constraint;  // response_format
};

inline constexpr std::int32_t kDefaultMaxTokens = 256;

// Reads a JSON body, or a PML body with the options in the query string. Takes the prompt out of `request`.
// Errors: kUnsupportedMediaType, kInvalidJson, kInvalidField, kUnknownField.
Result<WireGenerate> read_generate(HttpRequest& request);

// The fields of such a body; beside a PML body, all but `prompt` are those of the query string.
JsonFields generate_fields();

}  // namespace promptcached::api
