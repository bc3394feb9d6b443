#include "api/spec/document.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

#include "api/spec/components.h"
#include "api/spec/field_schema.h"
#include "api/spec/operations.h"
#include "api/wire/schema.h"

namespace promptcached::api {
namespace {

constexpr const char* kJson = "application/json";
constexpr const char* kPml[] = {"application/xml", "text/xml", "text/plain"};

Json ref(std::string_view kind, std::string_view name) {
  return {{"$ref", "#/components/" + std::string(kind) + "/" + std::string(name)}};
}

const Operation& operation_of(const Route& route) {
  const auto all = operations();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Operation& operation) {
    return operation.method == route.method && operation.path == route.path;
  });
  assert(found != all.end());  // a test compares the two lists
  return *found;
}

Json parameters_of(const Route& route, const Operation& operation, const Json& details) {
  Json parameters = Json::array();
  const std::size_t open = route.path.find('{');
  if (open != std::string_view::npos) {
    const std::string_view name = route.path.substr(open + 1, route.path.find('}') - open - 1);
    parameters.push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  if (operation.query != nullptr) {
    const Json query = query_parameters(operation.query(), details);
    parameters.insert(parameters.end(), query.begin(), query.end());
  }
  if (!operation.header.empty()) {
    parameters.push_back(ref("parameters", operation.header));
  }
  return parameters;
}

Json body_of(const Operation& operation, const Json& details) {
  const JsonFields fields = operation.body();
  Json schema = object_schema(fields, details);
  if (!operation.other_bodies.empty()) {
    Json forms = Json::array({std::move(schema)});
    for (const std::string_view form : operation.other_bodies) {
      forms.push_back(ref("schemas", form));
    }
    schema = {{"anyOf", std::move(forms)}};
  }
  Json content = {{kJson, {{"schema", std::move(schema)}}}};
  if (operation.pml) {
    // Alone it is what stands in the one field that a JSON body must have.
    const auto source =
        std::find_if(fields.fields.begin(), fields.fields.end(), [](const auto& f) { return f.required; });
    Json pml = {{"type", "string"}};
    pml.merge_patch(details[source->name]);
    for (const char* type : kPml) {
      content[type] = {{"schema", pml}};
    }
  }
  return {{"required", true}, {"content", std::move(content)}};
}

// docs/api.md, Errors: what can be refused follows from what a route needs and reads.
std::set<int> refusals_of(const Route& route, const Operation& operation) {
  std::set<int> statuses(operation.refusals.begin(), operation.refusals.end());
  if (route.takes_body) {
    statuses.insert({400, 413, 415});
  }
  if (operation.query != nullptr) {
    statuses.insert(400);
  }
  if (route.scope != Scope::kOpen) {
    statuses.insert({401, 403});
  }
  if (route.path.find('{') != std::string_view::npos) {
    statuses.insert(404);
  }
  if (route.needs != Needs::kNothing) {
    statuses.insert(503);
  }
  return statuses;
}

Json answer_of(const Operation::Answer& answer, std::string_view type) {
  Json json = {{"description", status_words(answer.status)},
               {"headers", {{"X-Request-Id", ref("headers", "RequestId")}}}};
  if (answer.schema.empty()) {
    return json;
  }
  json["content"][std::string(type)]["schema"] = Json::parse(answer.schema);
  if (answer.streams) {
    json["content"]["text/event-stream"] = Json::object();  // OpenAPI 3.1 has no words for events
  }
  return json;
}

Json operation_json(const Route& route) {
  const Operation& operation = operation_of(route);
  const Json details = operation.details != nullptr ? operation.details() : Json::object();
  Json json = {{"summary", operation.summary}, {"tags", {route.label}}};
  json["operationId"] = std::string(route.method) + std::string(route.path);
  Json& security = json["security"] = Json::array();
  if (route.scope != Scope::kOpen) {
    security.push_back({{"key", {to_string(route.scope)}}});
  }
  if (Json parameters = parameters_of(route, operation, details); !parameters.empty()) {
    json["parameters"] = std::move(parameters);
  }
  if (operation.body != nullptr) {
    json["requestBody"] = body_of(operation, details);
  }
  for (const Operation::Answer& answer : operation.answers) {
    json["responses"][std::to_string(answer.status)] =
        answer_of(answer, route.label == "metrics" ? "text/plain" : kJson);
  }
  for (const int status : refusals_of(route, operation)) {
    json["responses"][std::to_string(status)] = ref("responses", std::to_string(status));
  }
  return json;
}

std::string lower(std::string_view method) {
  std::string text(method);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

Json refusal(int status) {
  Json json = {{"description", status_words(status)}, {"headers", {{"X-Request-Id", ref("headers", "RequestId")}}}};
  if (status == 429 || status == 503) {
    json["headers"]["Retry-After"] = ref("headers", "RetryAfter");
  }
  json["content"][kJson]["schema"] = ref("schemas", "Error");
  return json;
}

}  // namespace

Json openapi_document(const std::string& version) {
  Json document = {{"openapi", "3.1.0"}};
  document["info"] = {
      {"title", "promptcached"},
      {"version", version},
      {"description",
       "Errors of every route have one form. What is no proper HTTP gets it too, under 400, 408, 414, 416, "
       "417 or 431; 405 lists the methods in Allow; 500 is a bug."}};
  std::set<int> statuses;
  for (const Route& route : routes()) {
    document["paths"][std::string(route.path)][lower(route.method)] = operation_json(route);
    statuses.merge(refusals_of(route, operation_of(route)));
  }
  Json components = openapi_components();
  components["schemas"]["Retention"] = object_schema(retention_fields(), Json::object());
  for (const int status : statuses) {
    components["responses"][std::to_string(status)] = refusal(status);
  }
  document["components"] = std::move(components);
  return document;
}

Result<HttpResponse> openapi(RouteCall& call) {
  static const std::string text = to_text(openapi_document(call.service.options().version));
  HttpResponse response;
  response.content_type = kJson;
  response.body = text;
  return response;
}

}  // namespace promptcached::api
