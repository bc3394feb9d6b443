#include "api/explain_route.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "api/generate_route.h"
#include "api/json_reader.h"
#include "api/media_type.h"
#include "api/openai/routes.h"
#include "api/prompt.h"
#include "api/wire/events.h"
#include "core/pml/prompt_lint.h"

namespace promptcached::api {
namespace {

using engine::GenerateRequest;

// Which route the body is for: `messages` make it a chat's, a PML prompt /generate's, anything else a completion's.
Result<std::vector<GenerateRequest>> place(RouteCall& call) {
  const Result<BodyKind> kind = body_kind(call.request);
  if (!kind) {
    return kind.error();
  }
  if (*kind == BodyKind::kPml) {
    return generate_requests(call);
  }
  const Result<InputJson> body = parse_json_object(call.request.body);
  if (!body) {
    return body.error();
  }
  if (body->contains("messages")) {
    return chat_requests(call);
  }
  const auto prompt = body->find("prompt");
  if (prompt == body->end() || (prompt->is_string() && looks_like_pml(prompt->get_ref<const std::string&>()))) {
    return generate_requests(call);
  }
  return completion_requests(call);
}

// Stretches of positions that nothing of the prompt stands at: modules that were not imported, slots not filled.
Json holes_json(const pml::AssemblyPlan& plan) {
  std::vector<std::pair<std::int32_t, std::int32_t>> stretches;
  for (const pml::CachedPart& part : plan.cached) {
    for (const pml::CachedRange& range : part.ranges) {
      stretches.emplace_back(range.start, range.end());
    }
  }
  for (const pml::NewToken& token : plan.new_tokens) {
    stretches.emplace_back(token.position, token.position + 1);
  }
  std::ranges::sort(stretches);
  Json holes = Json::array();
  std::int32_t next = 0;
  for (const auto& [start, end] : stretches) {
    if (start > next) {
      holes.push_back({{"start", next}, {"end", start}});
    }
    next = std::max(next, end);
  }
  return holes;
}

Json explanation(const RouteCall& call, const GenerateRequest& request, const engine::Forecast& forecast) {
  engine::Engine& engine = *call.backend->engine;
  Json json;
  json["model"] = call.backend->model_name;
  if (request.version != nullptr) {
    json["schema"] = request.version->schema->name;
    json["version"] = request.version->schema->version;
  }
  json["usage"] = usage_json(forecast.usage);
  json["cache"] = cache_json(forecast.cache);
  json["compute"] = {{"new_tokens", forecast.usage.new_tokens}, {"encode_tokens", forecast.encode_tokens}};
  json["positions"] = {
      {"next", request.plan.next_position}, {"max", engine.text().max_positions}, {"holes", holes_json(request.plan)}};
  json["max_tokens"] = request.max_tokens;
  json["predicted"] = forecast.timing ? first_token_timing_json(*forecast.timing) : Json();
  const bool has_roles = !engine.text().tokenizer->control_token_spans(engine.text().roles.user.open).empty();
  json["warnings"] = pml::lint_prompt(request.plan, engine.pool().block_tokens(), has_roles);
  return json;
}

}  // namespace

Result<HttpResponse> explain(RouteCall& call) {
  Result<std::vector<GenerateRequest>> requests = place(call);
  if (!requests) {
    return requests.error();
  }
  if (requests->size() != 1) {
    return make_error(ErrorCode::kInvalidField, "prompt must be one prompt here; explain several one by one", "prompt");
  }
  const GenerateRequest& request = requests->front();
  const Result<engine::Forecast> forecast = call.backend->engine->forecast(request);
  if (!forecast) {
    return forecast.error();
  }
  return json_response(explanation(call, request, *forecast));
}

}  // namespace promptcached::api
