#include "api/ops_routes.h"

#include <string>
#include <utility>

#include "api/json.h"
#include "api/json_reader.h"
#include "api/query.h"

namespace promptcached::api {
namespace {

HttpResponse json_response(const Json& json) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = to_text(json);
  return response;
}

Json module_json(const kv::ModuleInfo& info, const engine::SchemaRegistry& registry) {
  Json json;
  json["key"] = info.key.hex();
  json["used_by"] = registry.users(info.key);
  json["tier"] = "device";
  json["bytes"] = info.bytes;
  json["tokens"] = info.tokens;
  json["pins"] = info.pins;
  json["pinned"] = info.retention.pin;
  json["priority"] = info.retention.priority;
  json["ttl_seconds"] = info.retention.ttl ? Json(info.retention.ttl->count()) : Json(nullptr);
  json["hits"] = info.hits;
  json["idle_seconds"] = json_milliseconds(info.idle_seconds);
  return json;
}

Json tier_json(const kv::PoolStats& stats) {
  Json json;
  json["tier"] = "device";
  json["capacity_bytes"] = stats.capacity_bytes;
  json["used_bytes"] = stats.module_bytes + stats.block_bytes;
  json["module_bytes"] = stats.module_bytes;
  json["pinned_bytes"] = stats.pinned_bytes;
  json["sequence_bytes"] = stats.block_bytes;
  json["free_bytes"] = stats.free_bytes;
  json["entries"] = stats.entries;
  return json;
}

}  // namespace

Result<HttpResponse> healthz(RouteCall&) { return json_response({{"status", "ok"}}); }

Result<HttpResponse> readyz(RouteCall& call) {
  const Readiness readiness = call.service.readiness();
  if (!readiness.ready) {
    return readiness.reason;
  }
  return json_response({{"status", "ready"}, {"model", call.backend ? call.backend->model_name : ""}});
}

Result<HttpResponse> metrics(RouteCall& call) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = call.backend->metrics->expose();
  return response;
}

Result<HttpResponse> get_cache(RouteCall& call) {
  engine::Engine& engine = *call.backend->engine;
  Json modules = Json::array();
  for (const kv::ModuleInfo& info : engine.pool().list()) {
    modules.push_back(module_json(info, engine.schemas()));
  }
  Json json;
  json["tiers"] = Json::array({tier_json(engine.pool().stats())});
  json["modules"] = std::move(modules);
  return json_response(json);
}

Result<HttpResponse> delete_cache(RouteCall& call) {
  Result<InputJson> options = json_from_query(call.request.query, {"tier"});
  if (!options) {
    return options.error();
  }
  ObjectReader in(*options);
  const std::string tier = in.text("tier").value_or("device");
  if (tier != "device") {
    in.refuse("tier", "must be 'device'");
  }
  if (Status status = in.finish(); !status) {
    return status.error();
  }
  const std::size_t freed = call.backend->engine->pool().drop_unpinned();
  return json_response({{"freed_bytes", freed}});
}

}  // namespace promptcached::api
