#include "api/generate_route.h"

#include <utility>

#include "api/answer_stream.h"
#include "api/error.h"
#include "api/grammar.h"
#include "api/prompt.h"
#include "api/random_id.h"
#include "api/wire/events.h"
#include "api/wire/generate.h"
#include "api/wire/sampling.h"
#include "core/pml/assembly_plan.h"

namespace promptcached::api {
namespace {

using engine::GenerateRequest;

Result<GenerateRequest> place(const RouteCall& call, WireGenerate& wire) {
  log_prompt(call, [&] { return wire.prompt; });
  if (Status status = check_logit_bias(wire.sampling, call.backend->engine->model_info().vocab_size); !status) {
    return status.error();
  }
  GenerateRequest request;
  const PromptOptions options{wire.add_generation_prompt, wire.max_tokens, kDefaultMaxTokens, wire.fidelity};
  if (Status status = place_pml(call, wire.prompt, options, request); !status) {
    return status.error();
  }
  request.id = new_id("gen-");
  request.sampling = std::move(wire.sampling);
  request.stop = std::move(wire.stop);
  request.top_logprobs = wire.top_logprobs;
  request.ignore_eos = wire.ignore_eos;
  request.bypass_cache = wire.bypass_cache;
  request.cache_scope = call.tenant;
  Result<std::shared_ptr<const guide::Grammar>> grammar = grammar_of(*call.backend, wire.constraint);
  if (!grammar) {
    return grammar.error();
  }
  request.grammar = std::move(*grammar);
  request.arrival = call.request.arrival;
  request.deadline = call.request.arrival + call.service.options().request_timeout;
  return request;
}

AnswerHead head_of(const Backend& backend, const GenerateRequest& request, bool echo) {
  const pml::Schema& schema = *request.version->schema;
  AnswerHead head{request.id, backend.model_name, schema.name, schema.version, std::nullopt};
  if (echo) {
    const std::vector<TokenId> ids = pml::prompt_token_ids(request.plan);
    head.prompt_text = backend.engine->text().tokenizer->decode(ids, /*skip_special=*/false);
  }
  return head;
}

}  // namespace

Result<HttpResponse> generate(RouteCall& call) {
  Result<WireGenerate> wire = read_generate(call.request);
  if (!wire) {
    return wire.error();
  }
  Result<GenerateRequest> request = place(call, *wire);
  if (!request) {
    return request.error();
  }
  AnswerHead head = head_of(*call.backend, *request, wire->echo);
  call.record->set_parse_seconds(std::chrono::duration<double>(Clock::now() - call.request.arrival).count());

  auto tokens = call.backend->engine->submit(std::move(*request));
  if (!tokens) {
    return tokens.error();
  }
  AnswerStream answer(call, std::move(*tokens), std::move(head), wire->top_logprobs > 0);
  return wire->stream ? AnswerStream::streamed(std::move(answer)) : std::move(answer).whole();
}

Result<std::vector<GenerateRequest>> generate_requests(RouteCall& call) {
  Result<WireGenerate> wire = read_generate(call.request);
  if (!wire) {
    return wire.error();
  }
  Result<GenerateRequest> request = place(call, *wire);
  return request ? Result(std::vector{std::move(*request)}) : request.error();
}

}  // namespace promptcached::api
