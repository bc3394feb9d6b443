#include "api/openai/completion_wire.h"

#include <algorithm>
#include <utility>

#include "api/wire/sampling.h"

namespace promptcached::api {
namespace {

constexpr std::int64_t kMaxLogprobs = 5;  // OpenAI's

bool are_tokens(const InputJson& value) {
  return value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_token_id);
}

// A text, a list of texts, a list of token ids, or a list of such lists.
void read_prompts(ObjectReader& in, std::vector<WirePrompt>& prompts) {
  InputJson* const value = in.value("prompt");
  if (value == nullptr) {
    return in.refuse("prompt", "is required");
  }
  if (value->is_string()) {
    prompts.emplace_back(std::move(value->get_ref<std::string&>()));
    return;
  }
  if (are_tokens(*value)) {
    prompts.emplace_back(value->get<std::vector<TokenId>>());
    return;
  }
  const bool is_list = value->is_array() && !value->empty() && value->size() <= kMaxChoices;
  for (std::size_t i = 0; is_list && i < value->size(); ++i) {
    InputJson& prompt = (*value)[i];
    if (prompt.is_string()) {
      prompts.emplace_back(std::move(prompt.get_ref<std::string&>()));
    } else if (are_tokens(prompt)) {
      prompts.emplace_back(prompt.get<std::vector<TokenId>>());
    }
  }
  if (!is_list || prompts.size() != value->size()) {
    in.refuse("prompt",
              "must be a text, a list of token ids, or a list of 1 to " + std::to_string(kMaxChoices) + " of either");
  }
}

void refuse_what_is_not_supported(ObjectReader& in, const WireCompletion& wire) {
  if (const auto suffix = in.text("suffix"); suffix && !suffix->empty()) {
    in.refuse("suffix", "is not supported: the model does not fill in the middle");
  }
  if (in.integer("best_of", 1, kMaxChoices).value_or(wire.n) != wire.n) {
    in.refuse("best_of", "must equal n: every answer that is computed is returned");
  }
  if (wire.echo && wire.logprobs) {
    in.refuse("echo", "does not go with logprobs: those of the prompt are not computed");
  }
}

Status read_fields(ObjectReader& in, std::string_view body, WireCompletion& wire) {
  read_prompts(in, wire.prompts);
  read_common_fields(in, body, wire);
  wire.max_tokens = read_token_count(in, "max_tokens");
  if (const auto top = in.integer("logprobs", 0, kMaxLogprobs)) {
    wire.logprobs = true;
    wire.top_logprobs = static_cast<std::int32_t>(*top);
  }
  set_if_given(wire.echo, in.boolean("echo"));
  refuse_what_is_not_supported(in, wire);
  if (wire.prompts.size() * static_cast<std::size_t>(wire.n) > kMaxChoices) {
    in.refuse("n", "times the number of prompts must be at most " + std::to_string(kMaxChoices));
  }
  return in.finish_leniently();
}

}  // namespace

Result<WireCompletion> read_completion(const HttpRequest& request) {
  Result<InputJson> object = read_json_body(request);
  if (!object) {
    return object.error();
  }
  ObjectReader in(*object);
  WireCompletion wire;
  if (Status status = read_fields(in, request.body, wire); !status) {
    return status.error();
  }
  return wire;
}

JsonFields completion_fields() {
  WireCompletion wire;
  return fields_asked_for([&](ObjectReader& in) { (void)read_fields(in, {}, wire); });
}

}  // namespace promptcached::api
