#include "server/schema_document.h"

#include <limits>
#include <utility>

#include "api/json.h"
#include "api/json_reader.h"
#include "core/base/sha256.h"

namespace promptcached::server {
namespace {

constexpr std::string_view kMagic = "promptcached-schema ";
constexpr std::string_view kVersion = "1 ";

std::string checksum(std::string_view body) { return to_hex(Sha256().update_field("schema", body).digest()); }

api::Json retention_json(const pml::RetentionPolicy& policy) {
  return {{"pin", policy.pin},
          {"ttl_seconds", policy.ttl_seconds ? api::Json(*policy.ttl_seconds) : api::Json(nullptr)},
          {"priority", policy.priority}};
}

pml::RetentionPolicy read_retention(api::ObjectReader& in) {
  pml::RetentionPolicy policy;
  policy.pin = in.boolean("pin").value_or(false);
  policy.ttl_seconds =
      in.number("ttl_seconds", {.min = 0, .max = std::numeric_limits<double>::max(), .above_min = true});
  policy.priority = static_cast<int>(
      in.integer("priority", std::numeric_limits<int>::min(), std::numeric_limits<int>::max()).value_or(0));
  return policy;
}

std::string required(api::ObjectReader& in, std::string_view name) {
  std::optional<std::string> text = in.text(name);
  if (!text) {
    in.refuse(name, "is required");
  }
  return std::move(text).value_or("");
}

Result<engine::StoredSchema> read_body(std::string_view body) {
  // Larger schemas than any request brings do not come up; the limit is there for what is no schema.
  Result<api::InputJson> object = api::parse_json_object(body, {.max_values = 10'000'000});
  if (!object) {
    return object.error();
  }
  engine::StoredSchema schema;
  api::ObjectReader in(*object);
  schema.name = required(in, "name");
  schema.retention.schema = read_retention(in);
  if (api::InputJson* modules = in.object("modules")) {
    for (auto& [path, fields] : modules->items()) {
      if (!fields.is_object()) {
        return make_error(ErrorCode::kInvalidField, "'modules' must map module paths to objects");
      }
      api::ObjectReader inner(fields, "modules." + path + ".");
      schema.retention.modules.emplace_back(path, read_retention(inner));
      if (Status status = inner.finish(); !status) {
        return status.error();
      }
    }
  }
  schema.source = required(in, "source");
  if (Status status = in.finish(); !status) {
    return status.error();
  }
  return schema;
}

Error damaged(const std::string& what) { return make_error(ErrorCode::kInvalidField, what); }

}  // namespace

std::string schema_document(const engine::StoredSchema& schema) {
  api::Json json;
  json["name"] = schema.name;
  json.update(retention_json(schema.retention.schema));
  api::Json modules = api::Json::object();
  for (const auto& [path, policy] : schema.retention.modules) {
    modules[path] = retention_json(policy);
  }
  json["modules"] = std::move(modules);
  json["source"] = schema.source;
  const std::string body = api::to_text(json) + "\n";
  return std::string(kMagic).append(kVersion).append(checksum(body)).append("\n").append(body);
}

Result<engine::StoredSchema> read_schema_document(std::string_view document) {
  if (!document.starts_with(kMagic)) {
    return damaged("it is no schema of promptcached's");
  }
  document.remove_prefix(kMagic.size());
  if (!document.starts_with(kVersion)) {
    return damaged("it is of another version than this server reads");
  }
  document.remove_prefix(kVersion.size());
  const std::size_t line = document.find('\n');
  if (line == std::string_view::npos || checksum(document.substr(line + 1)) != document.substr(0, line)) {
    return damaged("it was cut short or changed: its checksum does not match");
  }
  return read_body(document.substr(line + 1));
}

}  // namespace promptcached::server
