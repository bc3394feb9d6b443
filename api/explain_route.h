// POST /explain: what a request would come to, computing nothing. docs/api.md, "Explain".
#pragma once

#include "api/routes.h"

namespace promptcached::api {

Result<HttpResponse> explain(RouteCall& call);

}  // namespace promptcached::api
