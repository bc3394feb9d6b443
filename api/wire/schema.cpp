#include "api/wire/schema.h"

#include "api/json_reader.h"
#include "api/media_type.h"
#include "api/query.h"

namespace promptcached::api {
namespace {

constexpr double kMaxTtlSeconds = 10.0 * 365 * 24 * 3600;
constexpr int kMaxPriority = 1'000'000;

std::optional<double> read_ttl(ObjectReader& in) {
  return in.number("ttl_seconds", {.min = 0, .max = kMaxTtlSeconds, .above_min = true});
}

void read_retention(ObjectReader& in, engine::RetentionPatch& patch) {
  patch.pin = in.boolean("pin");
  if (const auto ttl = read_ttl(in)) {
    patch.ttl_seconds.emplace(*ttl);
  } else if (in.is_null("ttl_seconds")) {
    patch.ttl_seconds.emplace(std::nullopt);
  }
  if (const auto priority = in.integer("priority", -kMaxPriority, kMaxPriority)) {
    patch.priority = static_cast<int>(*priority);
  }
}

// What stands in the query string: `wait` and `dry_run`, with a PML body also how long to keep it.
Status read_query(ObjectReader& in, BodyKind kind, WireSchema& wire) {
  wire.wait = in.boolean("wait").value_or(true);
  wire.dry_run = in.boolean("dry_run").value_or(false);
  if (kind == BodyKind::kPml) {
    wire.pin = in.boolean("pin");
    wire.ttl_seconds = read_ttl(in);
  }
  return in.finish();
}

Status read_body(ObjectReader& in, WireSchema& wire) {
  if (auto source = in.text("schema")) {
    wire.source = std::move(*source);
  } else {
    in.refuse("schema", "is required: PML");
  }
  wire.pin = in.boolean("pin");
  wire.ttl_seconds = read_ttl(in);
  return in.finish();
}

Status read_patch_body(ObjectReader& in, WirePatch& patch) {
  read_retention(in, patch.schema);
  if (InputJson* modules = in.object("modules")) {
    for (auto& [path, fields] : modules->items()) {
      if (!fields.is_object()) {
        in.refuse("modules", "must map module paths to objects");
        break;
      }
      ObjectReader inner(fields, "modules." + path.substr(0, 200) + ".");
      engine::RetentionPatch retention;
      read_retention(inner, retention);
      if (Status status = inner.finish(); !status) {
        in.refuse(status.error());
        break;
      }
      patch.modules.emplace_back(path, retention);
    }
  }
  return in.finish();
}

Json retention_json(const pml::RetentionPolicy& retention) {
  Json json;
  json["pin"] = retention.pin;
  json["ttl_seconds"] = retention.ttl_seconds ? Json(*retention.ttl_seconds) : Json(nullptr);
  json["priority"] = retention.priority;
  return json;
}

Json module_json(const engine::ModuleStatus& status) {
  const pml::Module& module = *status.module;
  Json json;
  json["path"] = module.path;
  if (module.union_number != 0) {
    json["union"] = module.union_number;
  }
  json["start"] = module.start;
  json["end"] = module.end;
  json["tokens"] = module.token_count();
  json["tier"] = status.tier;
  json["kv_bytes"] = status.kv_bytes;
  json["shared"] = status.shared;
  if (!module.parameters.empty()) {
    Json params = Json::array();
    for (const pml::Parameter& parameter : module.parameters) {
      params.push_back({{"name", parameter.name}, {"start", parameter.start}, {"len", parameter.length}});
    }
    json["params"] = std::move(params);
  }
  json.update(retention_json(status.retention));
  return json;
}

}  // namespace

Result<WireSchema> read_schema(HttpRequest& request) {
  const Result<BodyKind> kind = body_kind(request);
  if (!kind) {
    return kind.error();
  }
  Result<InputJson> options = json_from_query(request.query, {});
  if (!options) {
    return options.error();
  }
  WireSchema wire;
  ObjectReader query(*options);
  if (Status status = read_query(query, *kind, wire); !status) {
    return status.error();
  }
  if (*kind == BodyKind::kPml) {
    wire.source = std::move(request.body);
    return wire;
  }
  Result<InputJson> object = parse_json_object(request.body);
  if (!object) {
    return object.error();
  }
  ObjectReader body(*object);
  if (Status status = read_body(body, wire); !status) {
    return status.error();
  }
  return wire;
}

Result<WirePatch> read_patch(const HttpRequest& request) {
  if (Status status = require_json(request); !status) {
    return status.error();
  }
  Result<InputJson> object = parse_json_object(request.body);
  if (!object) {
    return object.error();
  }
  WirePatch patch;
  ObjectReader in(*object);
  if (Status status = read_patch_body(in, patch); !status) {
    return status.error();
  }
  return patch;
}

JsonFields schema_fields() {
  WireSchema wire;
  return fields_asked_for([&](ObjectReader& in) { (void)read_body(in, wire); });
}

JsonFields schema_query_fields() {
  WireSchema wire;
  return fields_asked_for([&](ObjectReader& in) { (void)read_query(in, BodyKind::kPml, wire); });
}

JsonFields patch_fields() {
  WirePatch patch;
  return fields_asked_for([&](ObjectReader& in) { (void)read_patch_body(in, patch); });
}

JsonFields retention_fields() {
  engine::RetentionPatch patch;
  return fields_asked_for([&](ObjectReader& in) {
    read_retention(in, patch);
    (void)in.finish();
  });
}

Json schema_json(const engine::SchemaStatus& status, const std::string& model, bool summary) {
  const pml::Schema& schema = *status.version->schema;
  Json json;
  json["name"] = schema.name;
  json["version"] = schema.version;
  json["state"] = engine::to_string(status.state);
  json["model"] = model;
  json["positions"] = schema.positions;
  json["tokens"] = schema.token_count;
  json["kv_bytes"] = status.kv_bytes;
  json["encode_ms"] = json_milliseconds(status.encode_ms);
  json["attention"] = pml::to_string(schema.attention);
  json.update(retention_json(status.retention));
  if (status.failure) {
    json["failure"] = {{"code", to_string(status.failure->code)}, {"message", status.failure->message}};
  }
  if (summary) {
    json["module_count"] = status.modules.size();
    return json;
  }
  Json modules = Json::array();
  for (const engine::ModuleStatus& module : status.modules) {
    modules.push_back(module_json(module));
  }
  json["modules"] = std::move(modules);
  Json warnings = Json::array();
  for (const pml::Warning& warning : schema.warnings) {
    warnings.push_back(
        {{"line", warning.location.line}, {"column", warning.location.column}, {"message", warning.message}});
  }
  json["warnings"] = std::move(warnings);
  return json;
}

}  // namespace promptcached::api
