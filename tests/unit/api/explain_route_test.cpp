// POST /explain: whose body it is, and what is said about it.
#include "api/explain_route.h"

#include "api/prompt.h"
#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {
namespace {

class ExplainFixture : public ApiFixture {
 public:
  ExplainFixture() {
    REQUIRE(send("POST", "/schemas", kTravel, "text/xml").status == 201);
    engine.next_forecast.usage = {.prompt_tokens = 10, .cached_tokens = 4, .new_tokens = 6, .completion_tokens = 0};
    engine.next_forecast.cache = {{"maui", SourceLabel::kHost, 4}};
    engine.next_forecast.encode_tokens = 3;
  }
  nlohmann::json explained(const nlohmann::json& body) {
    const Answer answer = send("POST", "/explain", body.dump());
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    return nlohmann::json::parse(answer.body);
  }
  Answer send_json(const nlohmann::json& body) { return send("POST", "/explain", body.dump()); }
};

constexpr const char* kPrompt = "<prompt schema='travel'><maui/>Where to?</prompt>";

TEST_CASE("a PML prompt is explained, as JSON and as XML", "[api]") {
  ExplainFixture api;
  const auto json = api.explained({{"prompt", kPrompt}, {"max_tokens", 7}, {"stream", false}});
  CHECK(json["schema"] == "travel");
  CHECK(json["usage"]["cached_tokens"] == 4);
  CHECK(json["cache"] == nlohmann::json::parse(R"([{"module":"maui","tier":"host","tokens":4}])"));
  CHECK(json["compute"] == nlohmann::json::parse(R"({"new_tokens":6,"encode_tokens":3})"));
  CHECK(json["max_tokens"] == 7);
  CHECK(json["predicted"].is_null());
  CHECK(json["positions"]["max"] == 1000);
  // The slot, which has no argument, and the union, of which nothing is imported.
  REQUIRE(json["positions"]["holes"].size() == 1);
  CHECK(json["positions"]["next"].get<int>() > json["positions"]["holes"][0]["end"].get<int>());
  CHECK(json["warnings"].dump().find("union 1 is not used") != std::string::npos);

  const Answer xml = api.send("POST", "/explain", kPrompt, "application/xml");
  CHECK(xml.status == 200);
  CHECK(api.engine.requests.size() == 2);
}

TEST_CASE("a prediction has the names of an answer's timing", "[api]") {
  ExplainFixture api;
  api.engine.next_forecast.timing =
      engine::Timing{.queue_ms = 1, .load_ms = 2, .prefill_ms = 30, .ttft_ms = 33, .decode_ms = 0};
  const auto json = api.explained({{"prompt", kPrompt}});
  CHECK(json["predicted"] ==
        nlohmann::json::parse(R"({"queue_ms":1.0,"load_ms":2.0,"prefill_ms":30.0,"ttft_ms":33.0})"));
}

TEST_CASE("bodies of the OpenAI routes are explained", "[api]") {
  ExplainFixture api;
  const auto completion = api.explained({{"prompt", "one two three"}, {"n", 2}, {"unknown", 1}});
  CHECK_FALSE(completion.contains("schema"));
  CHECK(completion["positions"]["holes"].empty());
  CHECK(api.engine.requests.back().plan.new_tokens.size() == 3);
  api.explained({{"prompt", {5, 6, 7, 8}}});
  CHECK(api.engine.requests.back().plan.new_tokens.size() == 4);

  const auto chat =
      api.explained({{"messages", {{{"role", "user"}, {"content", "Where to?"}}}},
                     {"prompt_cache", {{"schema", "travel"}, {"modules", {{"maui", nlohmann::json::object()}}}}}});
  CHECK(chat["schema"] == "travel");
}

TEST_CASE("what the routes refuse is refused here", "[api]") {
  ExplainFixture api;
  CHECK(api.send_json({{"prompt", "<prompt schema='nowhere'/>"}}).status == 404);
  CHECK(api.send_json({{"prompt", kPrompt}, {"max_token", 1}}).status == 400);
  CHECK(api.send_json({{"prompt", kPrompt}, {"max_token", 1}}).json()["error"]["code"] == "unknown_field");
  CHECK(api.send_json({{"prompt", {"one", "two"}}}).status == 400);
  CHECK(api.send_json({{"messages", "hello"}}).status == 400);
  CHECK(api.send_json(nlohmann::json::object()).status == 400);
  CHECK(api.send("POST", "/explain", "[1]").status == 400);
  CHECK(api.engine.requests.empty());
}

TEST_CASE("a PML prompt is known by its beginning", "[api]") {
  CHECK(looks_like_pml("<prompt schema='a'/>"));
  CHECK(looks_like_pml(" \n<?xml version='1.0'?>\n<!-- a <b> --> <prompt>"));
  CHECK_FALSE(looks_like_pml("prompt"));
  CHECK_FALSE(looks_like_pml(""));
  CHECK_FALSE(looks_like_pml("<!-- no end <prompt"));
  CHECK_FALSE(looks_like_pml("Explain <prompt schema='a'/>"));
}

}  // namespace
}  // namespace promptcached::api
