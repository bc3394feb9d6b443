#include "api/prompt.h"

#include <algorithm>
#include <utility>

#include "api/wire/sampling.h"
#include "core/base/log.h"

namespace promptcached::api {
namespace {

constexpr const char* kPrompt = "prompt";

Error about(Error error, const std::string& param) {
  if (error.param.empty()) {
    error.param = param;
  }
  return error;
}

// What is left for the answer: by the model's positions, and by the memory that this request may take.
std::int32_t tokens_left(const engine::Engine& engine, kv::ModulePool& pool, const pml::AssemblyPlan& plan) {
  const std::int64_t positions = engine.text().max_positions - plan.next_position;
  const std::int64_t room = static_cast<std::int64_t>(pool.stats().capacity_bytes / pool.geometry().bytes_per_token());
  const std::int64_t memory = room - plan.prompt_tokens() - 2 * std::int64_t{pool.block_tokens()};
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, std::min(positions, memory)));
}

void set_max_tokens(engine::Engine& engine, const PromptOptions& options, engine::GenerateRequest& request) {
  request.max_tokens = options.max_tokens.value_or(
      std::min(options.default_max_tokens, tokens_left(engine, engine.pool(), request.plan)));
}

}  // namespace

void log_prompt(const RouteCall& call, const std::function<std::string()>& prompt) {
  if (call.service.options().log_prompts) {
    log::info(log::RequestId{call.request.request_id}, "prompt: {}", prompt());
  }
}

bool looks_like_pml(std::string_view text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    const bool is_comment = text.starts_with("<!--");
    if (!is_comment && !text.starts_with("<?")) {
      return text.starts_with("<prompt");
    }
    const std::string_view closing = is_comment ? "-->" : "?>";
    const std::size_t end = text.find(closing);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + closing.size());
  }
}

Status place_pml(const RouteCall& call, const std::string& pml, const PromptOptions& options,
                 engine::GenerateRequest& request) {
  engine::Engine& engine = *call.backend->engine;
  const auto document = pml::parse_prompt(pml, call.service.options().pml_limits);
  if (!document) {
    return about(document.error(), kPrompt);
  }
  auto version = engine.schemas().find(pml::schema_name(**document));
  if (!version) {
    Error error = about(version.error(), kPrompt);
    error.location = pml::schema_location(**document);
    return error;
  }
  request.version = std::move(*version);

  pml::ResolveOptions resolve;
  resolve.add_generation_prompt = options.add_generation_prompt;
  resolve.max_tokens = options.max_tokens.value_or(1);
  auto plan = pml::resolve(request.version->schema, **document, engine.text(), resolve);
  if (!plan) {
    return about(plan.error(), kPrompt);
  }
  request.plan = options.fidelity == Fidelity::kExact ? pml::exact_plan(*plan) : std::move(*plan);
  set_max_tokens(engine, options, request);
  return {};
}

Status place_tokens(const RouteCall& call, std::vector<TokenId> tokens, const PromptOptions& options,
                    engine::GenerateRequest& request, const std::string& param) {
  engine::Engine& engine = *call.backend->engine;
  if (tokens.empty()) {
    return make_error(ErrorCode::kEmptyPrompt, param + " has no tokens; a prompt needs at least one", param);
  }
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](TokenId id) { return id < 0 || id >= engine.model_info().vocab_size; });
  if (bad != tokens.end()) {
    return no_such_token(param, *bad, engine.model_info().vocab_size);
  }
  const std::int64_t needed = std::ssize(tokens) + std::int64_t{options.max_tokens.value_or(1)};
  if (needed > engine.text().max_positions) {
    return make_error(ErrorCode::kContextLengthExceeded,
                      "the prompt has " + std::to_string(tokens.size()) + " tokens, with the answer " +
                          std::to_string(needed) + "; the model takes " + std::to_string(engine.text().max_positions) +
                          "; shorten the prompt or ask for fewer tokens",
                      param);
  }
  request.plan = pml::plain_plan(std::move(tokens));
  set_max_tokens(engine, options, request);
  return {};
}

}  // namespace promptcached::api
