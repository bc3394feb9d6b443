// Registering, showing, changing and removing schemas.
#pragma once

#include "api/routes.h"

namespace promptcached::api {

Result<HttpResponse> list_schemas(RouteCall& call);
Result<HttpResponse> post_schema(RouteCall& call);
Result<HttpResponse> get_schema(RouteCall& call);
Result<HttpResponse> put_schema(RouteCall& call);
Result<HttpResponse> patch_schema(RouteCall& call);
Result<HttpResponse> delete_schema(RouteCall& call);

}  // namespace promptcached::api
