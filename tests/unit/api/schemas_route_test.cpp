#include "api/schemas_route.h"

#include <string>

#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {

TEST_CASE("registering answers 201, then 200, then 200 with another version", "[api]") {
  ApiFixture api;
  const Answer first = api.send("POST", "/schemas", kTravel, "application/xml");
  CHECK(first.status == 201);
  CHECK(first.header("Location") == "/schemas/travel");
  const auto json = first.json();
  CHECK(json["name"] == "travel");
  CHECK(json["state"] == "ready");
  CHECK(json["model"] == "test-model");
  CHECK(json["attention"] == "rooted");
  REQUIRE(json["modules"].size() == 3);
  CHECK(json["modules"][0]["path"] == "maui");
  CHECK_FALSE(json["modules"][0].contains("union"));
  CHECK(json["modules"][0]["params"][0]["name"] == "days");
  CHECK(json["modules"][0]["params"][0]["len"] == 2);
  CHECK(json["modules"][1]["union"] == 1);
  CHECK_FALSE(json["modules"][1].contains("params"));
  CHECK(json["modules"][1]["start"] == json["modules"][2]["start"]);
  CHECK(json["warnings"].is_array());

  CHECK(api.send("POST", "/schemas", kTravel, "text/plain").status == 200);
  const Answer changed =
      api.send("POST", "/schemas", R"({"schema":"<schema name='travel'>other</schema>","pin":true,"ttl_seconds":60})");
  CHECK(changed.status == 200);
  CHECK(changed.json()["version"] != json["version"]);
  CHECK(api.engine.registry().last_options.pin == true);
  CHECK(api.engine.registry().last_options.ttl_seconds == 60.0);
}

TEST_CASE("wait, dry_run and conditions", "[api]") {
  ApiFixture api;
  HttpRequest request = ApiFixture::request("POST", "/schemas", kTravel, "text/xml");
  request.query = {{"dry_run", "true"}};
  const Answer dry = api.send(request);
  CHECK(dry.status == 200);
  CHECK(dry.json()["state"] == "dry_run");
  CHECK(api.send("GET", "/schemas").json()["schemas"].empty());

  request.query = {{"wait", "false"}, {"pin", "true"}, {"ttl_seconds", "2.5"}};
  const Answer waiting = api.send(request);
  CHECK(waiting.status == 202);
  CHECK(waiting.json()["state"] == "encoding");
  CHECK_FALSE(api.engine.registry().last_options.wait);
  CHECK(api.engine.registry().last_options.ttl_seconds == 2.5);

  request.query.clear();
  request.headers.emplace_back("If-None-Match", "*");
  CHECK(api.send(request).status == 412);
  request.headers.back().second = "\"abc\"";
  CHECK(api.send(request).status == 400);
  request.headers.pop_back();
  request.query = {{"wiat", "false"}};
  const Answer typo = api.send(request);
  CHECK(typo.status == 400);
  CHECK(typo.json()["error"]["message"].get<std::string>().find("'wait'") != std::string::npos);
}

TEST_CASE("PUT checks the name", "[api]") {
  ApiFixture api;
  CHECK(api.send("PUT", "/schemas/travel", kTravel, "text/xml").status == 201);
  CHECK(api.send("PUT", "/schemas/other", kTravel, "text/xml").status == 409);
  HttpRequest dry = ApiFixture::request("PUT", "/schemas/other", kTravel, "text/xml");
  dry.query = {{"dry_run", "true"}};
  CHECK(api.send(dry).status == 409);
  dry.path = "/schemas/travel";
  CHECK(api.send(dry).status == 200);
  dry.headers.emplace_back("If-None-Match", "\"an-etag\"");
  CHECK(api.send(dry).json()["error"]["param"] == "If-None-Match");
}

TEST_CASE("list, show, delete", "[api]") {
  ApiFixture api;
  api.send("POST", "/schemas", kTravel, "text/xml");
  const auto list = api.send("GET", "/schemas").json();
  REQUIRE(list["schemas"].size() == 1);
  CHECK(list["schemas"][0]["name"] == "travel");
  CHECK(list["schemas"][0]["module_count"] == 3);
  CHECK_FALSE(list["schemas"][0].contains("modules"));
  CHECK_FALSE(api.send("GET", "/schemas/travel").json().contains("source"));
  HttpRequest with_source = ApiFixture::request("GET", "/schemas/travel");
  with_source.query = {{"source", "true"}};
  CHECK(api.send(with_source).json()["source"] == kTravel);
  for (const char* wrong : {"null", "", "yes"}) {
    with_source.query = {{"source", wrong}};
    CHECK(api.send(with_source).json()["error"]["param"] == "source");
  }
  const Answer missing = api.send("GET", "/schemas/travle");
  CHECK(missing.status == 404);
  CHECK(missing.json()["error"]["code"] == "unknown_schema");
  const Answer deleted = api.send("DELETE", "/schemas/travel");
  CHECK(deleted.status == 204);
  CHECK(deleted.body.empty());
  CHECK(api.send("DELETE", "/schemas/travel").status == 404);
}

TEST_CASE("a schema's faults have a place", "[api]") {
  ApiFixture api;
  const Answer answer = api.send("POST", "/schemas", "<schema name='s'>\n <module/></schema>", "text/xml");
  CHECK(answer.status == 400);
  CHECK(answer.json()["error"]["line"] == 2);
  CHECK(answer.json()["error"]["column"] == 2);
  CHECK(api.send("POST", "/schemas", "", "text/xml").status == 400);
  CHECK(api.send("POST", "/schemas", "{}").json()["error"]["param"] == "schema");
  CHECK(api.send("POST", "/schemas", R"({"schema":"x","pinned":true})").json()["error"]["code"] == "unknown_field");
  CHECK(api.send("POST", "/schemas", "schema=x", "application/x-www-form-urlencoded").status == 415);
}

TEST_CASE("PATCH changes retention, per schema and per module", "[api]") {
  ApiFixture api;
  api.send("POST", "/schemas", kTravel, "text/xml");
  const Answer answer =
      api.send("PATCH", "/schemas/travel",
               R"({"pin":true,"ttl_seconds":null,"modules":{"maui":{"priority":3},"a":{"ttl_seconds":5}}})");
  CHECK(answer.status == 200);
  const fakes::FakeRegistry& registry = api.engine.registry();
  CHECK(registry.last_patch.pin == true);
  REQUIRE(registry.last_patch.ttl_seconds.has_value());
  CHECK_FALSE(registry.last_patch.ttl_seconds->has_value());  // null takes the limit away
  CHECK_FALSE(registry.last_patch.priority.has_value());
  REQUIRE(registry.last_module_patches.size() == 2);
  CHECK(registry.last_module_patches[0].first == "a");
  CHECK(registry.last_module_patches[0].second.ttl_seconds == std::optional<std::optional<double>>(5.0));
  CHECK(registry.last_module_patches[1].second.priority == 3);
  CHECK_FALSE(registry.last_module_patches[1].second.ttl_seconds.has_value());

  CHECK(api.send("PATCH", "/schemas/travel", R"({"ttl_seconds":0})").json()["error"]["param"] == "ttl_seconds");
  CHECK(api.send("PATCH", "/schemas/travel", R"({"modules":{"maui":{"pinn":true}}})").json()["error"]["param"] ==
        "modules.maui.pinn");
  CHECK(api.send("PATCH", "/schemas/travel", R"({"modules":{"maui":7}})").status == 400);
  CHECK(api.send("PATCH", "/schemas/travel", kTravel, "text/xml").status == 415);
  CHECK(api.send("PATCH", "/schemas/none", "{}").status == 404);
}

TEST_CASE("what is in the cache", "[api]") {
  ApiFixture api;
  const auto json = api.send("GET", "/cache").json();
  REQUIRE(json["tiers"].size() == 1);
  CHECK(json["tiers"][0]["tier"] == "device");
  CHECK(json["tiers"][0]["capacity_bytes"] == 1 << 20);
  CHECK(json["modules"].empty());
  CHECK(api.send("DELETE", "/cache").json()["freed_bytes"] == 0);
  HttpRequest request = ApiFixture::request("DELETE", "/cache");
  request.query = {{"tier", "device"}};
  CHECK(api.send(request).status == 200);
  request.query = {{"tier", "disk"}};
  CHECK(api.send(request).json()["error"]["param"] == "tier");
}

TEST_CASE("metrics are text in Prometheus' format", "[api]") {
  ApiFixture api;
  const Answer answer = api.send("GET", "/metrics");
  CHECK(answer.response.content_type == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(answer.body.find("# TYPE promptcached_requests_total counter") != std::string::npos);
}

}  // namespace promptcached::api
