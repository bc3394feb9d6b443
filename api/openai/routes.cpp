#include "api/openai/routes.h"

#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "api/grammar.h"
#include "api/openai/answer.h"
#include "api/openai/chat_wire.h"
#include "api/openai/completion_wire.h"
#include "api/openai/forced_call.h"
#include "api/prompt.h"
#include "api/random_id.h"
#include "api/wire/sampling.h"
#include "core/tokenizer/chat_prompt.h"

namespace promptcached::api {
namespace {

using engine::GenerateRequest;

constexpr std::int32_t kDefaultCompletionTokens = 16;  // OpenAI's
constexpr std::int32_t kWhatIsLeft = std::numeric_limits<std::int32_t>::max();

Json model_json(const RouteCall& call) {
  const Backend& backend = *call.backend;
  Json json;
  json["id"] = backend.model_name;
  json["object"] = "model";
  json["created"] = backend.loaded_at;
  json["owned_by"] = "promptcached";
  json["max_model_len"] = backend.engine->text().max_positions;
  return json;
}

Error no_such_model(const std::string& asked, const std::string& served) {
  return make_error(ErrorCode::kNotFound, "the model '" + asked + "' is not served here; '" + served + "' is", "model");
}

// What both routes ask of a request before its prompt is looked at.
Status check(const RouteCall& call, const OpenAiFields& fields) {
  const Backend& backend = *call.backend;
  if (!fields.model.empty() && fields.model != backend.model_name) {
    return no_such_model(fields.model, backend.model_name);
  }
  return check_logit_bias(fields.sampling, backend.engine->model_info().vocab_size);
}

// All but the prompt.
GenerateRequest new_request(const RouteCall& call, const OpenAiFields& fields) {
  GenerateRequest request;
  request.sampling = fields.sampling;
  request.stop = fields.stop;
  request.top_logprobs = fields.top_logprobs;
  request.ignore_eos = fields.ignore_eos;
  request.cache_scope = call.tenant;
  request.arrival = call.request.arrival;
  request.deadline = call.request.arrival + call.service.options().request_timeout;
  return request;
}

// A validated body: what the engine is asked for, by prompt, and what the answer depends on.
struct Prepared {
  OpenAiFields fields;
  OpenAiHead head;
  std::vector<GenerateRequest> prompts;
};

// Hands `n` choices of each prompt to the engine, and answers with them. All of them run, or none.
Result<HttpResponse> answer(RouteCall& call, Result<Prepared> prepared) {
  if (!prepared) {
    return prepared.error();
  }
  auto& [fields, head, prompts] = *prepared;
  head.model = call.backend->model_name;
  head.logprobs = fields.logprobs;
  head.include_usage = fields.include_usage;
  head.choices_a_prompt = fields.n;
  const Result<std::shared_ptr<const guide::Grammar>> grammar = grammar_of(*call.backend, fields.constraint);
  if (!grammar) {
    return grammar.error();
  }
  call.record->set_parse_seconds(std::chrono::duration<double>(Clock::now() - call.request.arrival).count());
  std::vector<std::shared_ptr<engine::TokenStream>> streams;
  for (const GenerateRequest& prompt : prompts) {
    for (std::int32_t i = 0; i < fields.n; ++i) {
      GenerateRequest request = prompt;
      request.grammar = *grammar;
      request.id = prompts.size() * static_cast<std::size_t>(fields.n) == 1
                       ? head.id
                       : head.id + "-" + std::to_string(streams.size());
      if (request.sampling.seed) {
        *request.sampling.seed += static_cast<std::uint64_t>(i);  // else all would say the same
      }
      auto stream = call.backend->engine->submit(std::move(request));
      if (!stream) {
        for (const auto& submitted : streams) {
          submitted->cancel();
        }
        return stream.error();
      }
      streams.push_back(std::move(*stream));
    }
  }
  OpenAiAnswer answer(call, std::move(head), std::move(streams));
  return fields.stream ? OpenAiAnswer::streamed(std::move(answer)) : std::move(answer).whole();
}

Result<std::vector<TokenId>> tokens_of(const Tokenizer& tokenizer, const WirePrompt& prompt) {
  if (const auto* const ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    return *ids;
  }
  Result<std::vector<TokenId>> ids = encode_text(tokenizer, std::get<std::string>(prompt));
  if (!ids) {
    Error error = ids.error();
    error.param = "prompt";
    return error;
  }
  return ids;
}

Result<Prepared> prepare_completion(RouteCall& call) {
  Result<WireCompletion> wire = read_completion(call.request);
  if (!wire) {
    return wire.error();
  }
  if (Status status = check(call, *wire); !status) {
    return status.error();
  }
  const Tokenizer& tokenizer = *call.backend->engine->text().tokenizer;
  OpenAiHead head;
  head.id = new_id("cmpl-");
  std::vector<GenerateRequest> requests;
  for (const WirePrompt& prompt : wire->prompts) {
    Result<std::vector<TokenId>> tokens = tokens_of(tokenizer, prompt);
    if (!tokens) {
      return tokens.error();
    }
    if (const auto* const text = std::get_if<std::string>(&prompt)) {
      log_prompt(call, [&] { return *text; });
    }
    if (wire->echo) {
      const auto* const text = std::get_if<std::string>(&prompt);
      head.echo.push_back(text != nullptr ? *text : tokenizer.decode(*tokens, /*skip_special=*/false));
    }
    GenerateRequest request = new_request(call, *wire);
    const PromptOptions options{true, wire->max_tokens, kDefaultCompletionTokens};
    if (Status status = place_tokens(call, std::move(*tokens), options, request, "prompt"); !status) {
      return status.error();
    }
    requests.push_back(std::move(request));
  }
  return Prepared{std::move(*wire), std::move(head), std::move(requests)};
}

Result<Prepared> prepare_chat(RouteCall& call) {
  const ChatTemplate* const chat_template = call.backend->chat_template.get();
  Result<WireChat> wire = read_chat(call.request, chat_template);
  if (!wire) {
    return wire.error();
  }
  if (Status status = check(call, *wire); !status) {
    return status.error();
  }
  OpenAiHead head;
  head.chat = true;
  head.id = new_id("chatcmpl-");
  GenerateRequest request = new_request(call, *wire);
  const PromptOptions options{wire->context["add_generation_prompt"].get<bool>(), wire->max_tokens, kWhatIsLeft,
                              wire->fidelity};
  if (wire->pml) {
    if (!wire->forced_tools.empty()) {
      return make_error(
          ErrorCode::kInvalidField,
          "a call cannot be forced in a conversation with modules: the chat template, which says how tools "
          "are called, has no part in it",
          "tool_choice");
    }
    log_prompt(call, [&] { return *wire->pml; });
    if (Status status = place_pml(call, *wire->pml, options, request); !status) {
      return status.error();
    }
    return Prepared{std::move(*wire), std::move(head), {std::move(request)}};
  }
  if (chat_template == nullptr) {
    return make_error(ErrorCode::kInvalidField,
                      "this model has no chat template; use /v1/completions, or /generate with a schema", "messages");
  }
  log_prompt(call, [&] { return wire->context["messages"].dump(); });
  // An answer that must look otherwise calls nothing, whatever it may look like.
  if (wire->has_tools && !wire->constraint) {
    head.tools = tool_syntax_of(chat_template->source());
  }
  if (!wire->forced_tools.empty()) {
    if (head.tools == ToolSyntax::kNone) {
      return make_error(ErrorCode::kInvalidField,
                        "this model's chat template has no calls of a known form to force; use tool_choice 'auto'",
                        "tool_choice");
    }
    wire->constraint =
        forced_call(head.tools, chat_template->source(), *call.backend->engine->text().tokenizer, wire->forced_tools);
  }
  Result<std::vector<TokenId>> tokens =
      encode_chat(*chat_template, *call.backend->engine->text().tokenizer, std::move(wire->context));
  if (!tokens) {
    return tokens.error();
  }
  if (Status status = place_tokens(call, std::move(*tokens), options, request, "messages"); !status) {
    return status.error();
  }
  return Prepared{std::move(*wire), std::move(head), {std::move(request)}};
}

Result<std::vector<GenerateRequest>> prompts_of(Result<Prepared> prepared) {
  return prepared ? Result(std::move(prepared->prompts)) : prepared.error();
}

}  // namespace

Result<HttpResponse> list_models(RouteCall& call) {
  return json_response({{"object", "list"}, {"data", Json::array({model_json(call)})}});
}

Result<HttpResponse> get_model(RouteCall& call) {
  const std::string& asked = call.path_value("model");
  if (asked != call.backend->model_name) {
    return no_such_model(asked, call.backend->model_name);
  }
  return json_response(model_json(call));
}

Result<HttpResponse> completions(RouteCall& call) { return answer(call, prepare_completion(call)); }

Result<HttpResponse> chat_completions(RouteCall& call) { return answer(call, prepare_chat(call)); }

Result<std::vector<GenerateRequest>> completion_requests(RouteCall& call) {
  return prompts_of(prepare_completion(call));
}

Result<std::vector<GenerateRequest>> chat_requests(RouteCall& call) { return prompts_of(prepare_chat(call)); }

}  // namespace promptcached::api
