#include "api/spec/document.h"

#include <algorithm>
#include <set>
#include <string>

#include "api/spec/field_schema.h"
#include "api/spec/operations.h"
#include "api/wire/generate.h"
#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {
namespace {

std::string name_of(std::string_view method, std::string_view path) {
  std::string name(method);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name + " " + std::string(path);
}

std::set<std::string> routes_by_name() {
  std::set<std::string> names;
  for (const Route& route : routes()) {
    names.insert(name_of(route.method, route.path));
  }
  return names;
}

// Every "$ref" in `json`.
void collect_references(const Json& json, std::set<std::string>& references) {
  if (json.is_object() && json.contains("$ref")) {
    references.insert(json["$ref"].get<std::string>().substr(1));
  }
  for (const Json& inner : json) {
    if (inner.is_structured()) {
      collect_references(inner, references);
    }
  }
}

}  // namespace

TEST_CASE("the OpenAPI document has the routes, all of them and no others", "[api][spec]") {
  const std::set<std::string> expected = routes_by_name();
  std::multiset<std::string> described;
  for (const Operation& operation : operations()) {
    described.insert(name_of(operation.method, operation.path));
  }
  CHECK(std::set<std::string>(described.begin(), described.end()) == expected);
  CHECK(described.size() == expected.size());

  const Json document = openapi_document("1.2.3");
  CHECK(document["info"]["version"] == "1.2.3");
  std::set<std::string> named;
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      named.insert(method + " " + path);
      CHECK_FALSE(operation["responses"].empty());
    }
  }
  CHECK(named == expected);
}

TEST_CASE("routes say by their place in the list who may use them and what they refuse", "[api][spec]") {
  const Json document = openapi_document("1");
  for (const Route& route : routes()) {
    const Json& operation =
        document["paths"][std::string(route.path)][name_of(route.method, "").substr(0, route.method.size())];
    CAPTURE(route.method, route.path);
    const bool open = route.scope == Scope::kOpen;
    CHECK(operation["security"] == (open ? Json::array() : Json::array({{{"key", {to_string(route.scope)}}}})));
    CHECK(operation["responses"].contains("401") != open);
    CHECK(operation.contains("requestBody") == route.takes_body);
    CHECK(operation["responses"].contains("413") == route.takes_body);
    CHECK((route.needs == Needs::kNothing || operation["responses"].contains("503")));
  }
}

TEST_CASE("every reference of the OpenAPI document leads somewhere", "[api][spec]") {
  const Json document = openapi_document("1");
  std::set<std::string> references;
  collect_references(document, references);
  CHECK(references.size() > 20);
  for (const std::string& reference : references) {
    CAPTURE(reference);
    CHECK(document.contains(Json::json_pointer(reference)));
  }
}

TEST_CASE("what is said of fields is said of fields that are read, and of all that cannot speak for themselves",
          "[api][spec]") {
  std::set<std::string> used;
  std::set<std::string> said;
  for (const Operation& operation : operations()) {
    CAPTURE(operation.method, operation.path);
    const Json details = operation.details != nullptr ? operation.details() : Json::object();
    for (const auto& [name, words] : details.items()) {
      said.insert(name);
    }
    for (const auto read : {operation.body, operation.query}) {
      const JsonFields asked = read != nullptr ? read() : JsonFields();
      for (const JsonField& field : asked.fields) {
        CAPTURE(field.name);
        used.insert(field.name);
        CHECK((field.kind != JsonField::Kind::kAny || details.contains(field.name)));
      }
    }
  }
  for (const std::string& name : said) {
    CAPTURE(name);
    CHECK(used.count(name) == 1);
  }
}

TEST_CASE("defaults and choices are taken", "[api][spec]") {
  const auto taken = [](const Json& body) {
    HttpRequest request = ApiFixture::request("POST", "/generate", body.dump());
    return read_generate(request).ok();
  };
  const Json document = openapi_document("1");
  const Json& content = document["paths"]["/generate"]["post"]["requestBody"]["content"];
  Json body = {{"prompt", "<prompt/>"}};
  for (const auto& [name, schema] : content["application/json"]["schema"]["properties"].items()) {
    if (schema.contains("default")) {
      body[name] = schema["default"];
    }
    for (const Json& value : schema.value("enum", Json::array())) {
      Json with_value = body;
      with_value[name] = value;
      CAPTURE(name, value.dump());
      CHECK(taken(with_value));
    }
  }
  CHECK(body.size() > 12);
  CHECK(body["stream"] == true);
  CHECK(taken(body));
  body["max_tokens"] = 0;
  CHECK_FALSE(taken(body));
}

TEST_CASE("kinds and limits are those of the reading", "[api][spec]") {
  const JsonFields asked = fields_asked_for([](ObjectReader& in) {
    in.integer("count", 1, 9);
    in.number("heat", {.min = 0, .max = 2.5, .above_min = true});
    in.texts("stop", 16);
    in.text("hidden");
    in.text("choice");
    if (!in.text("name")) {
      in.refuse("name", "is required");
    }
    (void)in.finish();
  });
  const Json details = Json::parse(R"({"hidden": null, "choice": {"enum": ["a"]}, "count": {"default": 2}})");
  CHECK(object_schema(asked, details) == Json::parse(R"({
    "type": "object",
    "properties": {
      "count": {"type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 2},
      "heat": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 2.5},
      "stop": {"type": ["string", "array", "null"], "items": {"type": "string"}, "maxItems": 16},
      "choice": {"type": ["string", "null"], "enum": ["a", null]},
      "name": {"type": "string"}
    },
    "required": ["name"],
    "additionalProperties": false
  })"));
  const Json parameters = query_parameters(asked, details);
  CHECK(parameters.size() == 4);
  CHECK(parameters[2] == Json::parse(R"({"name": "stop", "in": "query",
                                         "schema": {"type": "array", "items": {"type": "string"}, "maxItems": 16}})"));
}

TEST_CASE("the document is there before the model, and needs no key", "[api][spec]") {
  ServiceOptions options;
  options.version = "9.8.7";
  Service service(options);
  const Result<ApiKeys> keys = ApiKeys::parse("0123456789abcdef");
  const Router router(service, &*keys);
  const Answer answer = ApiFixture::send(router, ApiFixture::request("GET", "/openapi.json"));
  CHECK(answer.status == 200);
  CHECK(answer.response.content_type == "application/json");
  CHECK(answer.json()["openapi"] == "3.1.0");
  CHECK(answer.json()["info"]["version"] == "9.8.7");
}

}  // namespace promptcached::api
