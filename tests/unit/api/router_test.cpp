#include "api/router.h"

#include <set>
#include <string>

#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {
namespace {

std::string error_code(const Answer& answer) { return answer.json()["error"]["code"]; }

}  // namespace

TEST_CASE("the list of routes is consistent", "[api]") {
  std::set<std::string> seen;
  for (const Route& route : routes()) {
    CAPTURE(route.path);
    CHECK(seen.insert(std::string(route.method) + " " + std::string(route.path)).second);
    CHECK(route.handler != nullptr);
    // Whoever changes something needs a body-less DELETE or the right to write; reading needs no more than to read.
    // A model's name is for those who may use it.
    const bool changes_nothing =
        route.scope != Scope::kWrite && (route.scope != Scope::kGenerate || route.label == "models");
    CHECK((route.method == "GET") == changes_nothing);
    CHECK((route.needs == Needs::kNothing) == (route.scope == Scope::kOpen));
  }
  CHECK(route_labels() == std::vector<std::string>{"generate", "explain", "models", "completions", "chat", "tokenize",
                                                   "schemas", "healthz", "readyz", "metrics", "cache", "openapi"});
}

TEST_CASE("an unknown path is 404, a known one with another method 405", "[api]") {
  ApiFixture api;
  for (const char* path :
       {"/", "/nothing", "/generate/", "/schemas/", "/schemas/a/b", "//schemas", "schemas", "*", ""}) {
    CAPTURE(path);
    const Answer answer = api.send("GET", path);
    CHECK(answer.status == 404);
    CHECK(error_code(answer) == "not_found");
    CHECK(answer.header("X-Request-Id") == "test-id");
    CHECK(answer.json()["error"]["request_id"] == "test-id");
  }
  const Answer generate = api.send("GET", "/generate");
  CHECK(generate.status == 405);
  CHECK(error_code(generate) == "method_not_allowed");
  CHECK(generate.header("Allow") == "POST, OPTIONS");
  CHECK(api.send("POST", "/schemas/travel").header("Allow") == "GET, HEAD, PUT, PATCH, DELETE, OPTIONS");
  CHECK(api.send("TRACE", "/cache").header("Allow") == "GET, HEAD, DELETE, OPTIONS");
  // Bytes that are no text do not come back.
  CHECK(api.send("GET", std::string("/\xFF\0x", 4)).json().is_object());
}

TEST_CASE("OPTIONS lists the methods, HEAD is GET", "[api]") {
  ApiFixture api;
  const Answer options = api.send("OPTIONS", "/schemas");
  CHECK(options.status == 204);
  CHECK(options.header("Allow") == "GET, HEAD, POST, OPTIONS");
  CHECK(options.body.empty());
  CHECK(api.send("OPTIONS", "/nothing").status == 404);
  CHECK(api.send("HEAD", "/healthz").status == 200);
  CHECK(api.send("HEAD", "/generate").status == 405);
}

TEST_CASE("before the model is loaded probes answer and the rest is not ready", "[api]") {
  Service service({});
  const Router router(service, nullptr);
  CHECK(ApiFixture::send(router, ApiFixture::request("GET", "/healthz")).status == 200);
  for (const char* path : {"/readyz", "/metrics", "/schemas", "/cache"}) {
    const Answer answer = ApiFixture::send(router, ApiFixture::request("GET", path));
    CHECK(answer.status == 503);
    CHECK(error_code(answer) == "not_ready");
    CHECK(answer.json()["error"]["message"] == "not ready: the model is being loaded");
    CHECK_FALSE(answer.header("Retry-After").empty());
  }
  CHECK(ApiFixture::send(router, ApiFixture::request("POST", "/generate", "{}")).status == 503);
}

TEST_CASE("readiness follows warming and draining", "[api]") {
  ApiFixture api;
  CHECK(api.send("GET", "/readyz").json()["model"] == "test-model");
  api.service.set_waiting_for("schemas are being encoded: 3 of 7");
  CHECK(api.send("GET", "/readyz").status == 503);
  CHECK(api.send("GET", "/schemas").status == 200);  // warming does not keep anybody from working
  api.service.set_waiting_for("");
  CHECK(api.send("GET", "/readyz").status == 200);

  api.service.start_draining();
  api.service.set_waiting_for("");
  CHECK(error_code(api.send("GET", "/readyz")) == "draining");
  CHECK(error_code(api.send("POST", "/generate", "{}")) == "draining");
  CHECK(error_code(api.send("POST", "/schemas", kTravel, "text/xml")) == "draining");
  CHECK(api.send("GET", "/healthz").status == 200);
  CHECK(api.send("GET", "/metrics").status == 200);
}

TEST_CASE("a request that will be refused is not read", "[api]") {
  ApiFixture api;
  int reads = 0;
  const auto send = [&](std::string method, std::string path) {
    HttpRequest request = ApiFixture::request(std::move(method), std::move(path));
    request.read_body = [&](std::string& body) -> Status {
      ++reads;
      body = "{}";
      return {};
    };
    return api.send(std::move(request)).status;
  };
  CHECK(send("POST", "/nothing") == 404);
  CHECK(send("PUT", "/generate") == 405);
  CHECK(reads == 0);
  CHECK(send("POST", "/generate") == 400);
  CHECK(reads == 1);
  api.service.start_draining();
  CHECK(send("POST", "/generate") == 503);
  CHECK(reads == 1);
}

TEST_CASE("a body that cannot be read is the answer", "[api]") {
  ApiFixture api;
  HttpRequest request = ApiFixture::request("POST", "/generate");
  request.read_body = [](std::string&) -> Status { return make_error(ErrorCode::kBodyTooLarge, "too large"); };
  CHECK(api.send(std::move(request)).status == 413);
}

TEST_CASE("an exception is a 500 in the one form, and says nothing of its cause", "[api]") {
  ApiFixture api;
  HttpRequest request = ApiFixture::request("POST", "/generate");
  request.read_body = [](std::string&) -> Status { throw std::runtime_error("secret detail"); };
  const Answer answer = api.send(std::move(request));
  CHECK(answer.status == 500);
  CHECK(error_code(answer) == "internal");
  CHECK(answer.body.find("secret") == std::string::npos);
  CHECK(api.send("GET", "/healthz").status == 200);
  CHECK(api.metric(R"(promptcached_requests_total{route="generate",outcome="internal"})") +
            api.metric(R"(promptcached_requests_total{outcome="internal",route="generate"})") ==
        1);
}

TEST_CASE("keys open what their scopes say", "[api]") {
  ApiFixture api;
  const Result<ApiKeys> keys = ApiKeys::parse("all-of-it-0123456789\nreader-0123456789 read # a comment\n");
  REQUIRE(keys.ok());
  const Router router(api.service, &*keys);
  const auto status = [&](const char* method, const char* path, const char* authorization) {
    HttpRequest request = ApiFixture::request(method, path);
    if (*authorization != '\0') {
      request.headers.emplace_back("authorization", authorization);
    }
    return ApiFixture::send(router, std::move(request)).status;
  };
  CHECK(status("GET", "/schemas", "") == 401);
  CHECK(status("GET", "/schemas", "Bearer wrong-0123456789ab") == 401);
  CHECK(status("GET", "/schemas", "Basic all-of-it-0123456789") == 401);
  CHECK(status("GET", "/schemas", "Bearer reader-0123456789") == 200);
  CHECK(status("GET", "/metrics", "bearer reader-0123456789") == 200);
  CHECK(status("POST", "/generate", "Bearer reader-0123456789") == 403);
  CHECK(status("DELETE", "/cache", "Bearer reader-0123456789") == 403);
  CHECK(status("DELETE", "/cache", "Bearer all-of-it-0123456789") == 200);
  CHECK(status("GET", "/healthz", "") == 200);
  CHECK(status("GET", "/readyz", "") == 200);
}

TEST_CASE("the operations listener serves operations alone", "[api]") {
  ApiFixture api;
  const Router router(api.service, nullptr, Router::Listener::kOperations);
  for (const char* path : {"/healthz", "/readyz", "/metrics", "/cache"}) {
    CHECK(ApiFixture::send(router, ApiFixture::request("GET", path)).status == 200);
  }
  CHECK(ApiFixture::send(router, ApiFixture::request("GET", "/schemas")).status == 404);
  CHECK(ApiFixture::send(router, ApiFixture::request("POST", "/generate", "{}")).status == 404);
}

TEST_CASE("request ids are the client's if they are sane", "[api]") {
  CHECK(request_id("my-id:1/2") == "my-id:1/2");
  for (const std::string& bad : {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\r\nX: y"),
                                 std::string("\xFF"), std::string("a\"b")}) {
    const std::string made = request_id(bad);
    CHECK(made != bad);
    CHECK(made.rfind("req-", 0) == 0);
  }
  CHECK(request_id(std::nullopt) != request_id(std::nullopt));
}

TEST_CASE("every request is counted once, by route and outcome", "[api]") {
  ApiFixture api;
  api.send("GET", "/healthz");
  api.send("GET", "/healthz");
  api.send("GET", "/nothing");
  api.send("POST", "/generate", "{}");
  const auto count = [&](const char* route, const char* outcome) {
    return api.metric("promptcached_requests_total{outcome=\"" + std::string(outcome) + "\",route=\"" + route + "\"}") +
           api.metric("promptcached_requests_total{route=\"" + std::string(route) + "\",outcome=\"" + outcome + "\"}");
  };
  CHECK(count("healthz", "ok") == 2);
  CHECK(count("other", "not_found") == 1);
  CHECK(count("generate", "invalid_field") == 1);
  CHECK(api.metric("promptcached_request_duration_seconds_count") == 4);
}

TEST_CASE("an answer that cannot be delivered is a cancelled request", "[api]") {
  ApiFixture api;
  HttpRequest request = ApiFixture::request("GET", "/healthz");
  const HttpResponse response = api.router.handle(request);
  response.sent(false);
  CHECK(api.metric(R"(promptcached_requests_total{outcome="cancelled",route="healthz"})") +
            api.metric(R"(promptcached_requests_total{route="healthz",outcome="cancelled"})") ==
        1);
}

}  // namespace promptcached::api
