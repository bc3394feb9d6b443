#include "api/router.h"

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <random>
#include <utility>

#include "api/error.h"
#include "core/base/log.h"
#include "core/base/utf8.h"

namespace promptcached::api {
namespace {

using PathValues = std::vector<std::pair<std::string_view, std::string>>;

// "/a/b" -> "a", "b"; one segment at a time, without copies.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);  // the '/'
  const auto end = path.find('/');
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(segment.size());
  return segment;
}

// The values of the pattern's "{name}" segments; nullopt when `path` is another path.
std::optional<PathValues> match(std::string_view pattern, std::string_view path) {
  PathValues values;
  while (!pattern.empty() && !path.empty()) {
    if (path.front() != '/') {
      return std::nullopt;
    }
    const std::string_view expected = take_segment(pattern);
    const std::string_view segment = take_segment(path);
    if (expected.size() > 2 && expected.front() == '{') {
      if (segment.empty()) {
        return std::nullopt;
      }
      values.emplace_back(expected.substr(1, expected.size() - 2), segment);
    } else if (expected != segment) {
      return std::nullopt;
    }
  }
  if (!pattern.empty() || !path.empty()) {
    return std::nullopt;
  }
  return values;
}

struct Match {
  const Route* route = nullptr;  // null: no route has this path and method
  PathValues values;
  std::string allow;  // methods this path has; empty: no route has the path
};

void add_method(std::string& allow, std::string_view method) {
  allow += allow.empty() ? "" : ", ";
  allow += method;
}

Match find_route(const HttpRequest& request, Router::Listener listener) {
  // HEAD is GET without the body, which the server leaves out.
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  Match result;
  for (const Route& route : routes()) {
    if (listener == Router::Listener::kOperations && !route.operations) {
      continue;
    }
    std::optional<PathValues> values = match(route.path, request.path);
    if (!values) {
      continue;
    }
    add_method(result.allow, route.method);
    if (route.method == "GET") {
      add_method(result.allow, "HEAD");
    }
    if (route.method == method) {
      result.route = &route;
      result.values = std::move(*values);
    }
  }
  if (!result.allow.empty()) {
    add_method(result.allow, "OPTIONS");
  }
  return result;
}

HttpResponse without_route(const HttpRequest& request, const Match& match, RequestRecord& record) {
  if (!match.allow.empty() && request.method == "OPTIONS") {
    HttpResponse response;
    response.status = 204;
    response.headers.emplace_back("Allow", match.allow);
    return response;
  }
  const std::string path = replace_invalid_utf8(std::string_view(request.path).substr(0, 200));
  const bool known = !match.allow.empty();
  const Error error = known ? make_error(ErrorCode::kMethodNotAllowed, request.method + " is not allowed on " + path +
                                                                           " (allowed: " + match.allow + ")")
                            : make_error(ErrorCode::kNotFound, "there is nothing at " + path);
  record.set_failed(error.code);
  HttpResponse response = error_response(error, request.request_id);
  if (known) {
    response.headers.emplace_back("Allow", match.allow);
  }
  return response;
}

bool is_sane_id(std::string_view id) {
  constexpr std::string_view kAllowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._:/+=@";
  return !id.empty() && id.size() <= 128 && id.find_first_not_of(kAllowed) == std::string_view::npos;
}

void finish_response(HttpResponse& response, const std::shared_ptr<RequestRecord>& record) {
  response.headers.emplace_back("X-Request-Id", record->request_id());
  response.sent = [record, status = response.status](bool delivered) { record->finish(status, delivered); };
}

}  // namespace

std::string request_id(std::optional<std::string_view> from_client) {
  if (from_client && is_sane_id(*from_client)) {
    return std::string(*from_client);
  }
  // Unique within the process by the counter, among processes by the start.
  static const std::uint64_t kProcess = std::random_device{}() | (std::uint64_t{std::random_device{}()} << 32);
  static std::atomic<std::uint32_t> counter{0};
  char text[32];
  std::snprintf(text, sizeof text, "req-%012" PRIx64 "%08" PRIx32, kProcess & 0xFFFFFFFFFFFFU, counter.fetch_add(1));
  return text;
}

Router::Router(Service& service, const ApiKeys* keys, Listener listener)
    : service_(service), keys_(keys), listener_(listener) {}

HttpResponse Router::handle(HttpRequest& request) const {
  const auto record = std::make_shared<RequestRecord>(service_, request);
  HttpResponse response;
  try {
    Result<HttpResponse> answered = answer(request, record);
    if (answered) {
      response = std::move(*answered);
    } else {
      record->set_failed(answered.error().code);
      response = error_response(answered.error(), request.request_id);
    }
  } catch (const std::exception& fault) {
    // A bug, or out of memory: the details are for us, not for the client.
    log::error(log::RequestId{request.request_id}, "unexpected exception: {}", fault.what());
    record->set_failed(ErrorCode::kInternal);
    response = error_response(make_error(ErrorCode::kInternal, "internal error; the server's log has the request id"),
                              request.request_id);
  }
  finish_response(response, record);
  return response;
}

HttpResponse Router::refuse(const HttpRequest& request, int status, const Error& error) const {
  const auto record = std::make_shared<RequestRecord>(service_, request);
  record->set_failed(error.code);
  HttpResponse response = error_response(status, error, request.request_id);
  finish_response(response, record);
  return response;
}

Result<HttpResponse> Router::answer(HttpRequest& request, const std::shared_ptr<RequestRecord>& record) const {
  Match match = find_route(request, listener_);
  if (match.route == nullptr) {
    return without_route(request, match, *record);
  }
  record->set_route(match.route->label, match.route->operations);
  RouteCall route_call{service_, request, service_.backend(), record, std::move(match.values), {}};
  return call(*match.route, route_call);
}

Result<HttpResponse> Router::call(const Route& route, RouteCall& call) const {
  HttpRequest& request = call.request;
  if (keys_ != nullptr) {
    Result<std::string> tenant = keys_->check(request.header("Authorization"), route.scope);
    if (!tenant) {
      return tenant.error();
    }
    call.tenant = std::move(*tenant);
  }
  if (route.needs == Needs::kWork && service_.draining()) {
    return service_.readiness().reason;
  }
  if (route.needs != Needs::kNothing && call.backend == nullptr) {
    return service_.readiness().reason;
  }
  if (route.takes_body && request.read_body) {
    if (Status read = request.read_body(request.body); !read) {
      return read.error();
    }
    request.arrival = Clock::now();
    call.record->set_arrival(request.arrival);
  }
  return route.handler(call);
}

}  // namespace promptcached::api
