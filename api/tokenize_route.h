// /tokenize and /detokenize: what the server makes of a text.
#pragma once

#include "api/http_types.h"
#include "api/json_reader.h"
#include "api/routes.h"
#include "core/base/status.h"

namespace promptcached::api {

Result<HttpResponse> tokenize(RouteCall& call);
Result<HttpResponse> detokenize(RouteCall& call);

// The fields of their bodies; of /tokenize, without messages (chat_fields()).
JsonFields tokenize_fields();
JsonFields detokenize_fields();

}  // namespace promptcached::api
