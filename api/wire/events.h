// What the engine's events look like on the wire, streamed or merged into one document.
#pragma once

#include <string>
#include <vector>

#include "api/json.h"
#include "core/engine/generate_request.h"
#include "core/engine/token_stream.h"

namespace promptcached::api {

// What an answer says about its request, whatever happens to it.
struct AnswerHead {
  std::string id;
  std::string model;
  std::string schema;
  std::string version;
  std::optional<std::string> prompt_text;  // with `echo`
};

// The `start` event; of `start` null (nothing is known yet) the head alone.
Json start_json(const AnswerHead& head, const engine::StartEvent* start);
// `with_top`: the client asked for `logprobs`.
Json token_json(const engine::TokenEvent& token, bool with_top);
Json done_json(const engine::DoneEvent& done);

Json usage_json(const engine::Usage& usage);
Json cache_json(const std::vector<engine::CachePartInfo>& cache);
Json first_token_timing_json(const engine::Timing& timing);  // up to the first token
Json timing_json(const engine::Timing& timing);

}  // namespace promptcached::api
