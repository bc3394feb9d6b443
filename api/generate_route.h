// POST /generate.
#pragma once

#include "api/routes.h"

namespace promptcached::api {

// Waits for the engine's first event before it answers, so that a failure before the first token is an HTTP status;
// after a heartbeat's time of silence a stream begins nevertheless.
Result<HttpResponse> generate(RouteCall& call);

}  // namespace promptcached::api
