#include "api/ops_routes.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/json.h"
#include "api/json_reader.h"
#include "api/query.h"

namespace promptcached::api {
namespace {

Json module_json(std::string_view tier, const kv::ModuleInfo& info, const engine::SchemaRegistry& registry) {
  Json json;
  json["key"] = info.key.hex();
  json["used_by"] = registry.users(info.key);
  json["tier"] = tier;
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

Json device_json(const kv::PoolStats& stats) {
  Json json;
  json["tier"] = "device";
  json["capacity_bytes"] = stats.capacity_bytes;
  json["used_bytes"] = stats.module_bytes + stats.prefix_bytes + stats.block_bytes;
  json["module_bytes"] = stats.module_bytes;
  json["prefix_bytes"] = stats.prefix_bytes;
  json["pinned_bytes"] = stats.pinned_bytes;
  json["sequence_bytes"] = stats.block_bytes;
  json["free_bytes"] = stats.free_bytes;
  json["entries"] = stats.entries;
  json["prefix_entries"] = stats.prefix_entries;
  return json;
}

Json tier_json(const kv::Tier& tier) {
  const kv::TierStats stats = tier.stats();
  Json json;
  json["tier"] = to_string(tier.name());
  json["capacity_bytes"] = stats.capacity_bytes > 0 ? Json(stats.capacity_bytes) : Json(nullptr);
  json["used_bytes"] = stats.used_bytes;
  json["prefix_bytes"] = stats.prefix_bytes;
  json["pinned_bytes"] = stats.pinned_bytes;
  json["entries"] = stats.entries;
  json["prefix_entries"] = stats.prefix_entries;
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
    modules.push_back(module_json("device", info, engine.schemas()));
  }
  Json tiers = Json::array({device_json(engine.pool().stats())});
  for (const TierLabel name : kv::kTiersBelow) {
    const kv::Tier* const tier = engine.tiers().tier(name);
    if (tier == nullptr) {
      continue;
    }
    tiers.push_back(tier_json(*tier));
    for (const kv::ModuleInfo& info : tier->list()) {
      modules.push_back(module_json(to_string(name), info, engine.schemas()));
    }
  }
  Json json;
  json["tiers"] = std::move(tiers);
  json["modules"] = std::move(modules);
  return json_response(json);
}

Result<HttpResponse> delete_cache(RouteCall& call) {
  Result<InputJson> options = json_from_query(call.request.query, {"tier"});
  if (!options) {
    return options.error();
  }
  ObjectReader in(*options);
  const std::string wanted = in.text("tier").value_or("device");
  engine::Engine& engine = *call.backend->engine;
  std::string known = "device";
  std::optional<TierLabel> below;
  for (const TierLabel name : kv::kTiersBelow) {
    if (engine.tiers().tier(name) != nullptr) {
      known += ", " + std::string(to_string(name));
      below = to_string(name) == wanted ? std::optional(name) : below;
    }
  }
  if (wanted != "device" && !below) {
    in.refuse("tier", "must be one of " + known);
  }
  if (Status status = in.finish(); !status) {
    return status.error();
  }
  const std::size_t freed = below ? engine.tiers().drop_unpinned(*below) : engine.pool().drop_unpinned();
  return json_response({{"freed_bytes", freed}});
}

}  // namespace promptcached::api
