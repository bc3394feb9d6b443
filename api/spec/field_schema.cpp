#include "api/spec/field_schema.h"

#include <cmath>
#include <limits>
#include <utility>

namespace promptcached::api {
namespace {

using Kind = JsonField::Kind;

// Limits that are whole numbers are written as such.
Json limit(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

void add_range(Json& schema, const NumberRange& range) {
  schema[range.above_min ? "exclusiveMinimum" : "minimum"] = limit(range.min);
  if (range.max < std::numeric_limits<float>::max()) {
    schema["maximum"] = limit(range.max);
  }
}

Json value_schema(const JsonField& field) {
  switch (field.kind) {
    case Kind::kText:
      return {{"type", "string"}};
    case Kind::kBoolean:
      return {{"type", "boolean"}};
    case Kind::kNumber:
    case Kind::kInteger: {
      Json schema = {{"type", field.kind == Kind::kNumber ? "number" : "integer"}};
      add_range(schema, field.range);
      return schema;
    }
    case Kind::kSeed:
      return {{"type", "integer"},
              {"minimum", std::numeric_limits<std::int64_t>::min()},
              {"maximum", std::numeric_limits<std::uint64_t>::max()}};
    case Kind::kTexts:  // one text stands for a list of one
      return {{"type", {"string", "array"}}, {"items", {{"type", "string"}}}, {"maxItems", field.max_count}};
    case Kind::kObject:
      return {{"type", "object"}};
    case Kind::kList:
      return {{"type", "array"}};
    case Kind::kAny:
      break;
  }
  return Json::object();  // `details` have to say
}

// Null means absent, hence nothing where a field is required.
void accept_null(Json& schema) {
  if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  }
  if (!schema.contains("type")) {
    return;
  }
  if (!schema["type"].is_array()) {
    schema["type"] = Json::array({schema["type"]});
  }
  schema["type"].push_back("null");
}

Json detailed(const JsonField& field, const Json& details) {
  Json schema = value_schema(field);
  if (details.contains(field.name)) {
    schema.merge_patch(details[field.name]);
  }
  return schema;
}

bool is_hidden(const JsonField& field, const Json& details) {
  return details.contains(field.name) && details[field.name].is_null();
}

}  // namespace

Json object_schema(const JsonFields& asked, const Json& details) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  for (const JsonField& field : asked.fields) {
    if (is_hidden(field, details)) {
      continue;
    }
    Json value = detailed(field, details);
    if (field.required) {
      required.push_back(field.name);
    } else {
      accept_null(value);
    }
    schema["properties"][field.name] = std::move(value);
  }
  if (!required.empty()) {
    schema["required"] = std::move(required);
  }
  if (asked.strict) {
    schema["additionalProperties"] = false;
  }
  return schema;
}

Json query_parameters(const JsonFields& asked, const Json& details) {
  Json parameters = Json::array();
  for (const JsonField& field : asked.fields) {
    if (field.required || is_hidden(field, details)) {
      continue;  // what is required is the body there
    }
    Json schema = detailed(field, details);
    Json parameter = {{"name", field.name}, {"in", "query"}};
    if (schema.contains("description")) {
      parameter["description"] = schema["description"];
      schema.erase("description");
    }
    if (field.kind == Kind::kTexts) {
      schema["type"] = "array";  // the name is given once for each
      schema.erase("minLength");
    }
    if (field.kind == Kind::kObject) {
      parameter["content"] = {{"application/json", {{"schema", std::move(schema)}}}};
    } else {
      parameter["schema"] = std::move(schema);
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace promptcached::api
