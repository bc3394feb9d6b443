// /tokenize and /detokenize: what the server makes of a text.
#pragma once

#include "api/http_types.h"
#include "api/routes.h"
#include "core/base/status.h"

namespace promptcached::api {

Result<HttpResponse> tokenize(RouteCall& call);
Result<HttpResponse> detokenize(RouteCall& call);

}  // namespace promptcached::api
