// Content types: what a request's body is.
#pragma once

#include <string_view>

#include "api/http_types.h"
#include "core/base/status.h"

namespace promptcached::api {

enum class BodyKind { kJson, kPml };

// application/json is JSON; application/xml, text/xml and text/plain are PML; a body without a type is JSON when it
// begins with '{', PML when it begins with '<'. Everything else, and a charset other than UTF-8, is
// kUnsupportedMediaType, naming the type: forms too ("curl -d" sends that type unless told otherwise, and strips line
// breaks from files), and compressed bodies.
Result<BodyKind> body_kind(const HttpRequest& request);

// The same for a route that takes JSON alone.
Status require_json(const HttpRequest& request);

}  // namespace promptcached::api
