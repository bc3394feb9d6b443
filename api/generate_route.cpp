#include "api/generate_route.h"

#include <utility>

#include "api/answer_stream.h"
#include "api/error.h"
#include "api/prompt.h"
#include "api/random_id.h"
#include "api/wire/events.h"
#include "api/wire/generate.h"
#include "api/wire/sampling.h"
#include "core/pml/assembly_plan.h"

namespace promptcached::api {
namespace {

// A validated request, and what its answer says about it.
struct Prepared {
  engine::GenerateRequest request;
  AnswerHead head;
};

Result<Prepared> prepare(const RouteCall& call, WireGenerate wire) {
  const Backend& backend = *call.backend;
  log_prompt(call, [&] { return wire.prompt; });
  if (Status status = check_logit_bias(wire.sampling, backend.engine->model_info().vocab_size); !status) {
    return status.error();
  }
  Prepared prepared;
  engine::GenerateRequest& request = prepared.request;
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
