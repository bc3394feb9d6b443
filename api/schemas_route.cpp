#include "api/schemas_route.h"

#include <utility>

#include "api/json.h"
#include "api/json_reader.h"
#include "api/query.h"
#include "api/wire/schema.h"

namespace promptcached::api {
namespace {

Status refuse_query(const HttpRequest& request) {
  Result<InputJson> options = json_from_query(request.query, {});
  if (!options) {
    return options.error();
  }
  return ObjectReader(*options).finish();
}

// Parses and lays out without registering: the answer says so instead of a state.
Result<HttpResponse> dry_run(const RouteCall& call, const WireSchema& wire, const std::optional<std::string>& name) {
  const Result<engine::SchemaStatus> status = call.backend->engine->schemas().dry_run(wire.source);
  if (!status) {
    return status.error();
  }
  if (name && status->version->schema->name != *name) {
    return make_error(ErrorCode::kConflict,
                      "the schema is named '" + status->version->schema->name + "', the path says '" + *name + "'");
  }
  Json json = schema_json(*status, call.backend->model_name, /*summary=*/false);
  json["state"] = "dry_run";
  return json_response(json);
}

Result<HttpResponse> register_schema(RouteCall& call, std::optional<std::string> name) {
  Result<WireSchema> wire = read_schema(call.request);
  if (!wire) {
    return wire.error();
  }
  const auto condition = call.request.header("If-None-Match");
  if (condition && *condition != "*") {
    return make_error(ErrorCode::kInvalidField, "If-None-Match knows '*' alone here", "If-None-Match");
  }
  if (wire->dry_run) {
    return dry_run(call, *wire, name);
  }
  engine::RegisterOptions options;
  options.required_name = std::move(name);
  options.pin = wire->pin;
  options.ttl_seconds = wire->ttl_seconds;
  options.wait = wire->wait;
  options.only_if_new = condition.has_value();
  const Result<engine::RegisterOutcome> outcome =
      call.backend->engine->schemas().register_schema(wire->source, options);
  if (!outcome) {
    return outcome.error();
  }
  const bool encoding = outcome->status.state == engine::SchemaState::kEncoding;
  HttpResponse response = json_response(schema_json(outcome->status, call.backend->model_name, /*summary=*/false));
  response.status = encoding ? 202 : outcome->created ? 201 : 200;
  response.headers.emplace_back("Location", "/schemas/" + outcome->status.version->schema->name);
  return response;
}

}  // namespace

Result<HttpResponse> list_schemas(RouteCall& call) {
  if (Status status = refuse_query(call.request); !status) {
    return status.error();
  }
  Json schemas = Json::array();
  for (const engine::SchemaStatus& status : call.backend->engine->schemas().list()) {
    schemas.push_back(schema_json(status, call.backend->model_name, /*summary=*/true));
  }
  return json_response(Json{{"schemas", std::move(schemas)}});
}

Result<HttpResponse> post_schema(RouteCall& call) { return register_schema(call, std::nullopt); }

Result<HttpResponse> put_schema(RouteCall& call) { return register_schema(call, call.path_value("name")); }

Result<HttpResponse> get_schema(RouteCall& call) {
  Result<InputJson> options = json_from_query(call.request.query, {});
  if (!options) {
    return options.error();
  }
  ObjectReader in(*options);
  const bool with_source = in.boolean("source").value_or(false);
  if (Status status = in.finish(); !status) {
    return status.error();
  }
  const Result<engine::SchemaStatus> status = call.backend->engine->schemas().status(call.path_value("name"));
  if (!status) {
    return status.error();
  }
  Json json = schema_json(*status, call.backend->model_name, /*summary=*/false);
  if (with_source) {
    json["source"] = status->version->schema->source;
  }
  return json_response(json);
}

Result<HttpResponse> patch_schema(RouteCall& call) {
  if (Status status = refuse_query(call.request); !status) {
    return status.error();
  }
  const Result<WirePatch> patch = read_patch(call.request);
  if (!patch) {
    return patch.error();
  }
  const Result<engine::SchemaStatus> status =
      call.backend->engine->schemas().patch(call.path_value("name"), patch->schema, patch->modules);
  if (!status) {
    return status.error();
  }
  return json_response(schema_json(*status, call.backend->model_name, /*summary=*/false));
}

Result<HttpResponse> delete_schema(RouteCall& call) {
  if (Status status = refuse_query(call.request); !status) {
    return status.error();
  }
  if (Status status = call.backend->engine->schemas().remove(call.path_value("name")); !status) {
    return status.error();
  }
  HttpResponse response;
  response.status = 204;
  return response;
}

}  // namespace promptcached::api
