// POST /generate.
#pragma once

#include <vector>

#include "api/routes.h"
#include "core/engine/generate_request.h"

namespace promptcached::api {

// Waits for the engine's first event before it answers, so that a failure before the first token is an HTTP status;
// after a heartbeat's time of silence a stream begins nevertheless.
Result<HttpResponse> generate(RouteCall& call);

// What the engine would be asked for: one request. Errors as generate() answers.
Result<std::vector<engine::GenerateRequest>> generate_requests(RouteCall& call);

}  // namespace promptcached::api
