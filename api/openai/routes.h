// The routes that OpenAI's clients know: /v1/models, /v1/completions, /v1/chat/completions.
#pragma once

#include "api/http_types.h"
#include "api/routes.h"
#include "core/base/status.h"

namespace promptcached::api {

Result<HttpResponse> list_models(RouteCall& call);
Result<HttpResponse> get_model(RouteCall& call);
Result<HttpResponse> completions(RouteCall& call);
Result<HttpResponse> chat_completions(RouteCall& call);

}  // namespace promptcached::api
