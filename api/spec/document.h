// The OpenAPI document, made from the list of routes and from what their readers ask for.
#pragma once

#include <string>

#include "api/json.h"
#include "api/routes.h"

namespace promptcached::api {

// OpenAPI 3.1. `version`: of the program.
Json openapi_document(const std::string& version);

// GET /openapi.json.
Result<HttpResponse> openapi(RouteCall& call);

}  // namespace promptcached::api
