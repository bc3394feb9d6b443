// The one list of routes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_keys.h"
#include "api/http_types.h"
#include "api/request_record.h"
#include "api/service.h"
#include "core/base/status.h"

namespace promptcached::api {

// What a handler is given. Shared parts may be kept by a response that is still being streamed.
struct RouteCall {
  Service& service;
  HttpRequest& request;
  std::shared_ptr<const Backend> backend;  // null only for routes that need nothing
  std::shared_ptr<RequestRecord> record;
  std::vector<std::pair<std::string_view, std::string>> path_values;  // "{name}" of the route's path
  std::string tenant;  // of the API key (api_keys.h): computed text is shared within one; empty: no keys are asked for

  const std::string& path_value(std::string_view name) const;
};

using Handler = Result<HttpResponse> (*)(RouteCall& call);

enum class Needs {
  kNothing,  // answers from the first moment to the last
  kEngine,   // the model is loaded
  kWork,     // and the server is not shutting down
};

struct Route {
  std::string_view method;
  std::string_view path;   // "/schemas/{name}"
  std::string_view label;  // of metrics and logs
  Scope scope;
  Needs needs;
  bool takes_body;
  bool operations;  // served on --ops-listen too, and logged at debug level
  Handler handler;
};

std::span<const Route> routes();

// The distinct labels, for Metrics.
std::vector<std::string> route_labels();

}  // namespace promptcached::api
