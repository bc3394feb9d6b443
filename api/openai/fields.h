// What /v1/completions and /v1/chat/completions have in common on the wire.
//
// Fields of OpenAI's that change nothing here are ignored, as are unknown ones: clients send what their version knows.
// What would change the answer and is not supported is refused (docs/api.md has the table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/http_types.h"
#include "api/json_reader.h"
#include "core/base/status.h"
#include "core/engine/generate_request.h"
#include "core/guide/constraint.h"

namespace promptcached::api {

struct OpenAiFields {
  std::string model;                       // empty: whichever is served
  std::optional<std::int32_t> max_tokens;  // not given: the route's default, or what the context leaves
  engine::SamplingOptions sampling;        // logit_bias: ids not yet checked against the vocabulary
  std::vector<std::string> stop;
  std::int32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  std::int32_t top_logprobs = 0;
  bool ignore_eos = false;                      // an extension, for benchmarks
  std::optional<guide::Constraint> constraint;  // of response_format or its like, or a forced call
};

inline constexpr std::int32_t kMaxChoices = 128;  // of one request, all its prompts together

// The JSON object of a request that must have a JSON body.
Result<InputJson> read_json_body(const HttpRequest& request);

// All but max_tokens and logprobs, which the two routes spell differently. `body`: the text that `in` reads.
void read_common_fields(ObjectReader& in, std::string_view body, OpenAiFields& fields);

std::optional<std::int32_t> read_token_count(ObjectReader& in, std::string_view name);

}  // namespace promptcached::api
