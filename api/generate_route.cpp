#include "api/generate_route.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <random>
#include <utility>

#include "api/answer_stream.h"
#include "api/error.h"
#include "api/wire/events.h"
#include "api/wire/generate.h"
#include "core/base/log.h"
#include "core/pml/assembly_plan.h"

namespace promptcached::api {
namespace {

// A validated request, and what its answer says about it.
struct Prepared {
  engine::GenerateRequest request;
  AnswerHead head;
};

std::string new_generation_id() {
  static const std::uint32_t kProcess = std::random_device{}();
  static std::atomic<std::uint32_t> counter{0};
  char text[32];
  std::snprintf(text, sizeof text, "gen-%08" PRIx32 "%08" PRIx32, kProcess, counter.fetch_add(1));
  return text;
}

Status check_logit_bias(const engine::SamplingOptions& sampling, std::int32_t vocab_size) {
  if (!sampling.logit_bias.empty() && sampling.logit_bias.rbegin()->first >= vocab_size) {
    return make_error(ErrorCode::kInvalidField,
                      "logit_bias names token " + std::to_string(sampling.logit_bias.rbegin()->first) +
                          "; the model's last is " + std::to_string(vocab_size - 1),
                      "logit_bias");
  }
  return {};
}

Error about_prompt(Error error) {
  if (error.param.empty()) {
    error.param = "prompt";
  }
  return error;
}

// Finds the prompt's schema and joins the two. Sets version, plan and max_tokens.
Status resolve_prompt(const RouteCall& call, const WireGenerate& wire, engine::GenerateRequest& request) {
  engine::Engine& engine = *call.backend->engine;
  const auto document = pml::parse_prompt(wire.prompt, call.service.options().pml_limits);
  if (!document) {
    return about_prompt(document.error());
  }
  auto version = engine.schemas().find(pml::schema_name(**document));
  if (!version) {
    Error error = about_prompt(version.error());
    error.location = pml::schema_location(**document);
    return error;
  }
  request.version = std::move(*version);

  pml::ResolveOptions options;
  options.add_generation_prompt = wire.add_generation_prompt;
  // A default is no promise: not given, max_tokens is what the context leaves, if that is less.
  options.max_tokens = wire.max_tokens.value_or(1);
  auto plan = pml::resolve(request.version->schema, **document, engine.text(), options);
  if (!plan) {
    return about_prompt(plan.error());
  }
  request.plan = std::move(*plan);
  const std::int32_t left = engine.text().max_positions - request.plan.next_position;
  request.max_tokens = wire.max_tokens.value_or(std::max(1, std::min(kDefaultMaxTokens, left)));
  return {};
}

Result<Prepared> prepare(const RouteCall& call, WireGenerate wire) {
  const Backend& backend = *call.backend;
  if (call.service.options().log_prompts) {
    log::info(log::RequestId{call.request.request_id}, "prompt: {}", wire.prompt);
  }
  if (Status status = check_logit_bias(wire.sampling, backend.engine->model_info().vocab_size); !status) {
    return status.error();
  }
  Prepared prepared;
  engine::GenerateRequest& request = prepared.request;
  if (Status status = resolve_prompt(call, wire, request); !status) {
    return status.error();
  }
  request.id = new_generation_id();
  request.sampling = std::move(wire.sampling);
  request.stop = std::move(wire.stop);
  request.top_logprobs = wire.top_logprobs;
  request.ignore_eos = wire.ignore_eos;
  request.bypass_cache = wire.bypass_cache;
  request.arrival = call.request.arrival;
  request.deadline = call.request.arrival + call.service.options().request_timeout;

  const pml::Schema& schema = *request.version->schema;
  prepared.head = {request.id, backend.model_name, schema.name, schema.version, std::nullopt};
  if (wire.echo) {
    const std::vector<TokenId> ids = pml::prompt_token_ids(request.plan);
    prepared.head.prompt_text = backend.engine->text().tokenizer->decode(ids, /*skip_special=*/false);
  }
  return prepared;
}

}  // namespace

Result<HttpResponse> generate(RouteCall& call) {
  Result<WireGenerate> wire = read_generate(call.request);
  if (!wire) {
    return wire.error();
  }
  const bool stream = wire->stream;
  const bool with_top = wire->top_logprobs > 0;
  Result<Prepared> prepared = prepare(call, std::move(*wire));
  if (!prepared) {
    return prepared.error();
  }
  call.record->set_parse_seconds(std::chrono::duration<double>(Clock::now() - call.request.arrival).count());

  auto tokens = call.backend->engine->submit(std::move(prepared->request));
  if (!tokens) {
    return tokens.error();
  }
  AnswerStream answer(call, std::move(*tokens), std::move(prepared->head), with_top);
  return stream ? AnswerStream::streamed(std::move(answer)) : std::move(answer).whole();
}

}  // namespace promptcached::api
