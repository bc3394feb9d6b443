#include "api/tokenize_route.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/json.h"
#include "api/json_reader.h"
#include "api/openai/chat_wire.h"
#include "api/openai/fields.h"
#include "api/wire/sampling.h"
#include "core/tokenizer/chat_prompt.h"

namespace promptcached::api {
namespace {

struct WireText {
  std::string prompt;
  bool add_special_tokens = true;
};

Status read_text(ObjectReader& in, WireText& wire) {
  in.text("model");
  if (auto prompt = in.text("prompt")) {
    wire.prompt = std::move(*prompt);
  } else {
    in.refuse("prompt", "is required: a text (or messages)");
  }
  wire.add_special_tokens = in.boolean("add_special_tokens").value_or(true);
  return in.finish();
}

Status read_ids(ObjectReader& in, std::vector<TokenId>& ids) {
  in.text("model");
  const InputJson* const list = in.list("tokens");
  if (list != nullptr && std::all_of(list->begin(), list->end(), is_token_id)) {
    ids = list->get<std::vector<TokenId>>();
  } else {
    in.refuse("tokens", "is required: a list of token ids");
  }
  return in.finish();
}

// A text as /v1/completions takes it, or messages as /v1/chat/completions does.
Result<std::vector<TokenId>> tokens_of(RouteCall& call) {
  Result<InputJson> object = read_json_body(call.request);
  if (!object) {
    return object.error();
  }
  const Tokenizer& tokenizer = *call.backend->engine->text().tokenizer;
  if (object->contains("messages")) {
    const ChatTemplate* const chat_template = call.backend->chat_template.get();
    Result<WireChat> wire = read_chat(call.request, chat_template);
    if (!wire) {
      return wire.error();
    }
    if (chat_template == nullptr || wire->pml) {
      return make_error(ErrorCode::kInvalidField, "messages must be such as the model's chat template takes",
                        "messages");
    }
    return encode_chat(*chat_template, tokenizer, std::move(wire->context));
  }
  ObjectReader in(*object);
  WireText wire;
  if (Status status = read_text(in, wire); !status) {
    return status.error();
  }
  return encode_text(tokenizer, wire.prompt, wire.add_special_tokens);
}

}  // namespace

Result<HttpResponse> tokenize(RouteCall& call) {
  const Result<std::vector<TokenId>> ids = tokens_of(call);
  if (!ids) {
    return ids.error();
  }
  return json_response(
      {{"tokens", *ids}, {"count", ids->size()}, {"max_model_len", call.backend->engine->text().max_positions}});
}

Result<HttpResponse> detokenize(RouteCall& call) {
  Result<InputJson> object = read_json_body(call.request);
  if (!object) {
    return object.error();
  }
  ObjectReader in(*object);
  std::vector<TokenId> ids;
  if (Status status = read_ids(in, ids); !status) {
    return status.error();
  }
  const auto largest = std::max_element(ids.begin(), ids.end());
  const std::int32_t vocab_size = call.backend->engine->model_info().vocab_size;
  if (largest != ids.end() && *largest >= vocab_size) {
    return no_such_token("tokens", *largest, vocab_size);
  }
  return json_response({{"prompt", call.backend->engine->text().tokenizer->decode(ids, /*skip_special=*/false)}});
}

JsonFields tokenize_fields() {
  WireText wire;
  return fields_asked_for([&](ObjectReader& in) { (void)read_text(in, wire); });
}

JsonFields detokenize_fields() {
  std::vector<TokenId> ids;
  return fields_asked_for([&](ObjectReader& in) { (void)read_ids(in, ids); });
}

}  // namespace promptcached::api
