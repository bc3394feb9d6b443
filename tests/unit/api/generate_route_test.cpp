#include "api/generate_route.h"

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {
namespace {

using engine::DoneEvent;
using engine::FinishReason;
using engine::StartEvent;
using engine::TokenEvent;

struct Event {
  std::string name;
  nlohmann::json data;
};

// A strict reader: anything that is not an event or a comment fails the test.
std::vector<Event> parse_events(const std::string& text) {
  std::vector<Event> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(": ", 0) == 0) {
      events.push_back({"comment", line});
    } else {
      REQUIRE(line.rfind("event: ", 0) == 0);
      Event event{line.substr(7), {}};
      REQUIRE(std::getline(lines, line));
      REQUIRE(line.rfind("data: ", 0) == 0);
      event.data = nlohmann::json::parse(line.substr(6));
      events.push_back(std::move(event));
    }
    REQUIRE(std::getline(lines, line));
    REQUIRE(line.empty());
  }
  return events;
}

StartEvent start_event(std::vector<engine::CachePartInfo> parts = {{"maui", SourceLabel::kDevice, 4}}) {
  return {{.prompt_tokens = 10, .cached_tokens = 4, .new_tokens = 6, .completion_tokens = 0}, std::move(parts)};
}

TokenEvent token_event(std::string text, TokenId id) { return {std::move(text), id, -0.41F, {{id, "x", -0.41F}}}; }

DoneEvent done_event(FinishReason reason = FinishReason::kStop) {
  return {
      reason,
      {.prompt_tokens = 10, .cached_tokens = 4, .new_tokens = 6, .completion_tokens = 2},
      {.queue_ms = 0.1, .load_ms = 0, .prefill_ms = 31, .ttft_ms = 34.25, .decode_ms = 5, .tokens_per_second = 118.6}};
}

class GenerateFixture : public ApiFixture {
 public:
  explicit GenerateFixture(ServiceOptions options = {}) : ApiFixture(options) {
    REQUIRE(send("POST", "/schemas", kTravel, "text/xml").status == 201);
    engine.script = {start_event(), token_event("Swi", 7), token_event("m", 8), done_event()};
  }

  static std::string body(const std::string& fields = "", const std::string& prompt = "<maui/>Where?") {
    return nlohmann::json{{"prompt", "<prompt schema='travel'>" + prompt + "</prompt>"}}.dump().substr(
               0, nlohmann::json{{"prompt", "<prompt schema='travel'>" + prompt + "</prompt>"}}.dump().size() - 1) +
           (fields.empty() ? "" : "," + fields) + "}";
  }

  double ttft_count(const std::string& label) {
    return metric("promptcached_time_to_first_token_seconds_count{cache=\"" + label + "\"}");
  }
};

}  // namespace

TEST_CASE("a stream is start, tokens, done", "[api]") {
  GenerateFixture api;
  const Answer answer = api.send("POST", "/generate", api.body());
  CHECK(answer.status == 200);
  CHECK(answer.response.content_type == "text/event-stream");
  CHECK(answer.header("Cache-Control") == "no-cache");
  CHECK(answer.header("X-Accel-Buffering") == "no");
  const auto events = parse_events(answer.body);
  REQUIRE(events.size() == 4);
  CHECK(events[0].name == "start");
  CHECK(events[0].data["id"] == api.engine.requests.at(0).id);
  CHECK(events[0].data["model"] == "test-model");
  CHECK(events[0].data["schema"] == "travel");
  CHECK(events[0].data["version"] == api.engine.requests.at(0).version->schema->version);
  CHECK(events[0].data["usage"] == nlohmann::json{{"prompt_tokens", 10}, {"cached_tokens", 4}, {"new_tokens", 6}});
  CHECK(events[0].data["cache"][0] == nlohmann::json{{"module", "maui"}, {"tier", "device"}, {"tokens", 4}});
  CHECK(events[1].name == "token");
  CHECK(answer.body.find(R"(data: {"text":"Swi","token_id":7,"logprob":-0.41})") != std::string::npos);
  CHECK(events[3].name == "done");
  CHECK(events[3].data["finish_reason"] == "stop");
  CHECK(events[3].data["usage"]["total_tokens"] == 12);
  CHECK(events[3].data["timing"]["ttft_ms"] == 34.25);
  CHECK(api.ttft_count("device") == 1);
}

TEST_CASE("unstreamed, the same objects are merged", "[api]") {
  GenerateFixture api;
  const Answer answer = api.send("POST", "/generate", api.body(R"("stream":false,"logprobs":1)"));
  CHECK(answer.status == 200);
  CHECK(answer.response.content_type == "application/json");
  const auto json = answer.json();
  CHECK(json["text"] == "Swim");
  CHECK(json["schema"] == "travel");
  CHECK(json["cache"].size() == 1);
  CHECK(json["finish_reason"] == "stop");
  CHECK(json["usage"]["completion_tokens"] == 2);
  CHECK(json["timing"]["decode_ms"] == 5);
  CHECK(json["tokens"].size() == 2);
  CHECK(json["tokens"][0]["top_logprobs"][0]["token_id"] == 7);
  CHECK_FALSE(api.send("POST", "/generate", api.body(R"("stream":false)")).json().contains("tokens"));
  CHECK(api.ttft_count("device") == 2);
}

TEST_CASE("the request reaches the engine as it was meant", "[api]") {
  GenerateFixture api;
  api.send("POST", "/generate",
           api.body(R"("max_tokens":7,"temperature":0,"stop":["x"],"logprobs":3,"ignore_eos":true,"cache":"bypass")"));
  const engine::GenerateRequest& request = api.engine.requests.at(0);
  CHECK(request.max_tokens == 7);
  CHECK(request.sampling.temperature == 0);
  CHECK(request.stop == std::vector<std::string>{"x"});
  CHECK(request.top_logprobs == 3);
  CHECK(request.ignore_eos);
  CHECK(request.bypass_cache);
  CHECK(request.plan.prompt_tokens() > 0);
  REQUIRE(request.deadline.has_value());
  CHECK(*request.deadline - request.arrival == std::chrono::seconds(600));
}

TEST_CASE("a default max_tokens gives way to the context, a given one is refused", "[api]") {
  GenerateFixture api;
  const std::string long_text(600, 'x');  // one token
  api.send("POST", "/generate", api.body());
  CHECK(api.engine.requests.at(0).max_tokens == 256);

  std::string words;
  for (int i = 0; i < 900; ++i) {
    words += " w";
  }
  api.send("POST", "/generate", api.body("", "<maui/>" + words));
  const engine::GenerateRequest& capped = api.engine.requests.at(1);
  CHECK(capped.max_tokens < 256);
  CHECK(capped.plan.next_position + capped.max_tokens == 1000);
  const Answer refused = api.send("POST", "/generate", api.body(R"("max_tokens":256)", "<maui/>" + words));
  CHECK(refused.status == 400);
  CHECK(refused.json()["error"]["code"] == "context_length_exceeded");
  CHECK(refused.json()["error"]["param"] == "prompt");
  CHECK(refused.json()["error"]["message"].get<std::string>().find("1000") != std::string::npos);
  for (int i = 0; i < 200; ++i) {
    words += " w";
  }
  CHECK(api.send("POST", "/generate", api.body("", words)).json()["error"]["code"] == "context_length_exceeded");
  CHECK(api.engine.requests.size() == 2);
}

TEST_CASE("faults of the prompt are 4xx with a place", "[api]") {
  GenerateFixture api;
  const auto error = [&](const std::string& prompt) {
    const Answer answer = api.send("POST", "/generate", nlohmann::json{{"prompt", prompt}}.dump());
    auto json = answer.json()["error"];
    json["status"] = answer.status;
    CHECK(json["param"] == "prompt");
    return json;
  };
  auto unknown = error("<prompt schema='travle'><maui/></prompt>");
  CHECK(unknown["status"] == 404);
  CHECK(unknown["code"] == "unknown_schema");
  CHECK(unknown["line"] == 1);
  CHECK(unknown["message"].get<std::string>().find("travel") != std::string::npos);
  auto module = error("<prompt schema='travel'>\n  <mauii/></prompt>");
  CHECK(module["status"] == 400);
  CHECK(module["code"] == "unknown_module");
  CHECK(module["line"] == 2);
  CHECK(module["column"] == 3);
  CHECK(error("<prompt schema='travel'><a/><b/></prompt>")["code"] == "union_conflict");
  CHECK(error("<prompt schema='travel'>")["code"] == "invalid_pml");
  CHECK(error("")["status"] == 400);
  CHECK(error(std::string("<prompt schema='travel'>a\0b</prompt>", 36))["status"] == 400);
  CHECK(api.engine.requests.empty());
}

TEST_CASE("echo shows the prompt as the model sees it", "[api]") {
  GenerateFixture api;
  const auto json =
      api.send("POST", "/generate", api.body(R"("stream":false,"echo":true)", "<maui/>Where?</user>")).json();
  const std::string text = json["prompt_text"];
  CHECK(text.find("<|im_start|>") != std::string::npos);
  CHECK(text.find("surf and sun") != std::string::npos);
  CHECK(text.find("Where?") != std::string::npos);
  CHECK_FALSE(api.send("POST", "/generate", api.body(R"("stream":false)")).json().contains("prompt_text"));
  const auto events = parse_events(api.send("POST", "/generate", api.body(R"("echo":true)")).body);
  CHECK(events.at(0).data.contains("prompt_text"));
}

TEST_CASE("a token the model does not have is refused", "[api]") {
  GenerateFixture api;
  const Answer answer = api.send("POST", "/generate", api.body(R"("logit_bias":{"1000":1})"));
  CHECK(answer.status == 400);
  CHECK(answer.json()["error"]["param"] == "logit_bias");
}

TEST_CASE("a failure before the first token is an HTTP status", "[api]") {
  GenerateFixture api;
  for (const char* stream : {R"("stream":true)", R"("stream":false)"}) {
    api.engine.refuse = make_error(ErrorCode::kQueueFull, "full");
    const Answer full = api.send("POST", "/generate", api.body(stream));
    CHECK(full.status == 429);
    CHECK(full.header("Retry-After") == "1");
    api.engine.refuse.reset();
    api.engine.script = {make_error(ErrorCode::kTooLargeForCache, "never")};
    CHECK(api.send("POST", "/generate", api.body(stream)).status == 507);
  }
  CHECK(api.ttft_count("device") + api.ttft_count("none") + api.ttft_count("miss") == 0);
}

TEST_CASE("a failure after the first token is an event, then the end", "[api]") {
  GenerateFixture api;
  api.engine.script = {start_event(), token_event("Swi", 7), make_error(ErrorCode::kTimeout, "too slow")};
  const Answer streamed = api.send("POST", "/generate", api.body());
  CHECK(streamed.status == 200);
  const auto events = parse_events(streamed.body);
  REQUIRE(events.size() == 3);
  CHECK(events[2].name == "error");
  CHECK(events[2].data["error"]["code"] == "timeout");
  CHECK(events[2].data["error"]["request_id"] == "test-id");
  CHECK(api.send("POST", "/generate", api.body(R"("stream":false)")).status == 503);
  CHECK(api.ttft_count("device") == 0);  // failed requests add nothing
  CHECK(api.metric(R"(promptcached_requests_total{outcome="timeout",route="generate"})") +
            api.metric(R"(promptcached_requests_total{route="generate",outcome="timeout"})") ==
        2);
}

TEST_CASE("silence is filled with comments", "[api]") {
  ServiceOptions options;
  options.heartbeat = std::chrono::milliseconds(20);
  GenerateFixture api(options);
  api.engine.hold = true;
  std::thread producer([&] {
    std::shared_ptr<engine::TokenStream> stream;
    while ((stream = api.engine.held()) == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(90));
    stream->push(start_event());
    stream->push(token_event("a", 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stream->push(done_event());
  });
  const Answer answer = api.send("POST", "/generate", api.body());
  producer.join();
  CHECK(answer.status == 200);  // committed by the silence
  std::vector<std::string> names;
  for (const Event& event : parse_events(answer.body)) {
    names.push_back(event.name);
  }
  REQUIRE(names.size() >= 5);
  CHECK(names.front() == "comment");
  CHECK(names.back() == "done");
  CHECK(std::count(names.begin(), names.end(), "comment") >= 3);
  CHECK(std::count(names.begin(), names.end(), "token") == 1);
}

TEST_CASE("a failure after silence is an event", "[api]") {
  ServiceOptions options;
  options.heartbeat = std::chrono::milliseconds(10);
  GenerateFixture api(options);
  api.engine.hold = true;
  std::thread producer([&] {
    while (api.engine.held() == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    api.engine.held()->push(make_error(ErrorCode::kTimeout, "too slow"));
  });
  const Answer answer = api.send("POST", "/generate", api.body());
  producer.join();
  CHECK(answer.status == 200);
  CHECK(parse_events(answer.body).back().name == "error");
}

TEST_CASE("a client that goes cancels its request", "[api]") {
  GenerateFixture api;
  api.engine.hold = true;
  FakeClient client;
  HttpRequest request = ApiFixture::request("POST", "/generate", api.body(R"("stream":false)"));
  request.client = &client;
  std::thread leaving([&] {
    while (api.engine.held() == nullptr || !client.gone) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    client.gone();
    REQUIRE(api.engine.held()->cancelled());
    api.engine.held()->push(done_event(FinishReason::kCancelled));  // as the engine does
  });
  HttpResponse response = api.router.handle(request);
  leaving.join();
  response.sent(false);
  CHECK(client.watches == 0);
  CHECK(api.metric(R"(promptcached_requests_total{outcome="cancelled",route="generate"})") +
            api.metric(R"(promptcached_requests_total{route="generate",outcome="cancelled"})") ==
        1);
  CHECK(api.ttft_count("device") + api.ttft_count("none") == 0);
}

TEST_CASE("a stream that cannot be written is cancelled", "[api]") {
  GenerateFixture api;
  FakeClient client;
  HttpRequest request = ApiFixture::request("POST", "/generate", api.body());
  request.client = &client;
  api.engine.hold = true;
  std::thread producer([&] {
    while (api.engine.held() == nullptr) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    api.engine.held()->push(start_event());
  });
  HttpResponse response = api.router.handle(request);
  producer.join();
  CHECK(client.watches == 1);
  CollectingWriter writer;
  writer.writes_left = 0;
  response.stream(writer);
  CHECK(api.engine.held()->cancelled());
  response.sent(false);
  response = {};
  CHECK(client.watches == 0);
}

TEST_CASE("the time to the first token is counted by what the cache gave", "[api]") {
  GenerateFixture api;
  const auto run = [&](std::vector<engine::CachePartInfo> parts) {
    api.engine.script = {start_event(std::move(parts)), token_event("", 1), token_event("a", 2), done_event()};
    api.send("POST", "/generate", api.body());
  };
  run({});
  run({{"#root", SourceLabel::kDevice, 3}, {"maui", SourceLabel::kDevice, 4}});
  run({{"#root", SourceLabel::kDevice, 3}, {"maui", SourceLabel::kComputed, 4}});
  run({{"maui", SourceLabel::kComputed, 4}});
  CHECK(api.ttft_count("none") == 1);
  CHECK(api.ttft_count("device") == 1);
  CHECK(api.ttft_count("partial") == 1);
  CHECK(api.ttft_count("miss") == 1);
  CHECK(api.metric("promptcached_stage_seconds_count{stage=\"parse\"}") == 4);
  CHECK(api.metric("promptcached_stage_seconds_count{stage=\"write\"}") == 4);
}

}  // namespace promptcached::api
