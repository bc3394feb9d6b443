// Router: from a request to its answer. Every handler runs inside the one error boundary here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/api_keys.h"
#include "api/http_types.h"
#include "api/routes.h"
#include "api/service.h"

namespace promptcached::api {

// The client's own id if it is sane (1 to 128 of A-Z a-z 0-9 - . _ : / + = @), else a new one.
std::string request_id(std::optional<std::string_view> from_client);

class Router final {
 public:
  enum class Listener { kMain, kOperations };  // the latter serves routes marked `operations` alone

  // `keys` null: nobody needs one. All references must outlive the router.
  Router(Service& service, const ApiKeys* keys, Listener listener = Listener::kMain);

  // Never throws. The response carries X-Request-Id and reports to metrics and logs when it has been sent.
  HttpResponse handle(HttpRequest& request) const;
  // The answer to a request that is refused before it can be routed, counted and logged like the others.
  HttpResponse refuse(const HttpRequest& request, int status, const Error& error) const;

 private:
  Result<HttpResponse> answer(HttpRequest& request, const std::shared_ptr<RequestRecord>& record) const;
  Result<HttpResponse> call(const Route& route, RouteCall& call) const;

  Service& service_;
  const ApiKeys* keys_;
  const Listener listener_;
};

}  // namespace promptcached::api
