// The one mapping from an Error to what a client sees: HTTP status, error document, Retry-After.
#pragma once

#include <optional>
#include <string_view>

#include "api/http_types.h"
#include "api/json.h"
#include "core/base/status.h"

namespace promptcached::api {

int http_status(ErrorCode code);

// For failures that time may cure: how long to wait before trying again.
std::optional<int> retry_after_seconds(ErrorCode code);

// {"error": {"code", "message", "type", "param", "line", "column", "request_id"}}; the same in responses and in `error`
// events. Fields that do not apply are left out.
Json error_document(const Error& error, std::string_view request_id);

HttpResponse error_response(const Error& error, std::string_view request_id);
// The same document under another status: for faults that only HTTP has a name for (414, 431).
HttpResponse error_response(int status, const Error& error, std::string_view request_id);

}  // namespace promptcached::api
