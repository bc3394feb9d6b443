// What the API's tests share: a router over FakeEngine, and requests in one line.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/router.h"
#include "api/routes.h"
#include "api/service.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "tests/catch.h"
#include "tests/fakes/fake_engine.h"

namespace promptcached::api {

// A body written by a stream, and a client that may go away.
class CollectingWriter final : public BodyWriter {
 public:
  bool write(std::string_view data) override {
    if (writes_left == 0) {
      return false;
    }
    --writes_left;
    text += data;
    ++writes;
    return true;
  }
  std::string text;
  int writes = 0;
  int writes_left = 1'000'000;
};

// A client whose connection the test closes.
class FakeClient final : public ClientConnection {
 public:
  std::unique_ptr<DisconnectWatch> watch(std::function<void()> callback) override {
    gone = std::move(callback);
    ++watches;
    return std::make_unique<Watch>(*this);
  }
  std::function<void()> gone;
  int watches = 0;  // alive now

 private:
  struct Watch final : DisconnectWatch {
    explicit Watch(FakeClient& watched) : client(watched) {}
    ~Watch() override { --client.watches; }
    FakeClient& client;
  };
};

struct Answer {
  int status = 0;
  std::string body;  // of a stream: everything it wrote
  HttpResponse response;
  nlohmann::json json() const { return nlohmann::json::parse(body); }
  std::string header(std::string_view name) const {
    return std::string(find_header(response.headers, name).value_or(""));
  }
};

inline constexpr const char* kTravel =
    R"(<schema name="travel"><user><module name="maui">surf and sun <param name="days" len="2"/></module>)"
    R"(<union><module name="a">one two</module><module name="b">three</module></union></schema>)";

class ApiFixture {
 public:
  explicit ApiFixture(ServiceOptions options = {})
      : metrics(Metrics::Options{.build_info = {}, .routes = route_labels()}),
        service(options),
        router(service, nullptr) {
    log::configure({.level = log::Level::kOff});
    service.set_backend(std::make_shared<Backend>(Backend{&engine, &metrics, "test-model", nullptr, 0}));
    service.set_waiting_for("");
  }

  static HttpRequest request(std::string method, std::string path, std::string body = {},
                             std::string content_type = "application/json") {
    HttpRequest made;
    made.method = std::move(method);
    made.path = std::move(path);
    made.request_id = "test-id";
    made.body = std::move(body);
    if (!made.body.empty()) {
      made.headers.emplace_back("Content-Type", std::move(content_type));
    }
    return made;
  }

  Answer send(HttpRequest made) { return send(router, std::move(made)); }
  static Answer send(const Router& to, HttpRequest made) {
    Answer answer;
    answer.response = to.handle(made);
    answer.status = answer.response.status;
    CollectingWriter writer;
    if (answer.response.stream) {
      answer.response.stream(writer);
      answer.body = writer.text;
    } else {
      answer.body = answer.response.body;
    }
    answer.response.sent(true);
    return answer;
  }
  Answer send(std::string method, std::string path, std::string body = {},
              std::string content_type = "application/json") {
    return send(request(std::move(method), std::move(path), std::move(body), std::move(content_type)));
  }

  // The value of a line of /metrics; 0 when it is not there.
  double metric(const std::string& line_start) {
    const std::string text = metrics.expose();
    const auto at = text.find("\n" + line_start + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + line_start.size() + 2));
  }

  fakes::FakeEngine engine;
  Metrics metrics;
  Service service;
  Router router;
};

}  // namespace promptcached::api
