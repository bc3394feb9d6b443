#include "api/tokenize_route.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/json.h"
#include "api/json_reader.h"
#include "api/openai/chat_wire.h"
#include "api/openai/fields.h"
#include "core/tokenizer/chat_prompt.h"

namespace promptcached::api {
namespace {

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
  in.text("model");
  const std::optional<std::string> prompt = in.text("prompt");
  const bool add_special = in.boolean("add_special_tokens").value_or(true);
  if (!prompt) {
    in.refuse("prompt", "is required: a text (or messages)");
  }
  if (Status status = in.finish(); !status) {
    return status.error();
  }
  return encode_text(tokenizer, *prompt, add_special);
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
  in.text("model");
  const InputJson* const list = in.list("tokens");
  const bool are_ids = list != nullptr && std::all_of(list->begin(), list->end(), [](const InputJson& id) {
                         return id.is_number_integer() && id >= 0 && id <= std::numeric_limits<TokenId>::max();
                       });
  if (!are_ids) {
    in.refuse("tokens", "is required: a list of token ids");
  }
  if (Status status = in.finish(); !status) {
    return status.error();
  }
  const auto ids = list->get<std::vector<TokenId>>();
  return json_response({{"prompt", call.backend->engine->text().tokenizer->decode(ids, /*skip_special=*/false)}});
}

}  // namespace promptcached::api
