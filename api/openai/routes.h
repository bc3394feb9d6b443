// The routes that OpenAI's clients know: /v1/models, /v1/completions, /v1/chat/completions.
#pragma once

#include <vector>

#include "api/http_types.h"
#include "api/routes.h"
#include "core/base/status.h"
#include "core/engine/generate_request.h"

namespace promptcached::api {

Result<HttpResponse> list_models(RouteCall& call);
Result<HttpResponse> get_model(RouteCall& call);
Result<HttpResponse> completions(RouteCall& call);
Result<HttpResponse> chat_completions(RouteCall& call);

// What the engine would be asked for, one request for each prompt. Errors as the routes above answer.
Result<std::vector<engine::GenerateRequest>> completion_requests(RouteCall& call);
Result<std::vector<engine::GenerateRequest>> chat_requests(RouteCall& call);

}  // namespace promptcached::api
