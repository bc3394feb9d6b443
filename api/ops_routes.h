// Health, readiness, metrics, and what is in the cache.
#pragma once

#include "api/routes.h"

namespace promptcached::api {

Result<HttpResponse> healthz(RouteCall& call);
Result<HttpResponse> readyz(RouteCall& call);
Result<HttpResponse> metrics(RouteCall& call);
Result<HttpResponse> get_cache(RouteCall& call);
Result<HttpResponse> delete_cache(RouteCall& call);

}  // namespace promptcached::api
