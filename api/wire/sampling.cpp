#include "api/wire/sampling.h"

#include <charconv>
#include <limits>
#include <map>

namespace promptcached::api {
namespace {

constexpr std::size_t kMaxStops = 16;

// {"50256": -100}: token ids as JSON's keys.
void read_logit_bias(ObjectReader& in, std::map<TokenId, float>& bias) {
  InputJson* object = in.object("logit_bias");
  if (object == nullptr) {
    return;
  }
  for (const auto& [key, value] : object->items()) {
    TokenId id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc{} || parsed.ptr != key.data() + key.size() || id < 0) {
      in.refuse("logit_bias", "must have token ids as its keys");
      return;
    }
    const double number = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    const bool inside = number >= -100 && number <= 100;  // NaN is not
    if (!inside) {
      in.refuse("logit_bias", "must have numbers from -100 to 100 as its values");
      return;
    }
    bias[id] = static_cast<float>(number);
  }
}

}  // namespace

void read_sampling(ObjectReader& in, engine::SamplingOptions& sampling) {
  set_if_given(sampling.temperature, in.number("temperature", {.min = 0, .max = 2}));
  set_if_given(sampling.top_p, in.number("top_p", {.min = 0, .max = 1, .above_min = true}));
  set_if_given(sampling.top_k, in.integer("top_k", 0, std::numeric_limits<std::int32_t>::max()));
  set_if_given(sampling.min_p, in.number("min_p", {.min = 0, .max = 1}));
  set_if_given(sampling.repetition_penalty, in.number("repetition_penalty", {.min = 0, .max = 100, .above_min = true}));
  set_if_given(sampling.presence_penalty, in.number("presence_penalty", {.min = -2, .max = 2}));
  set_if_given(sampling.frequency_penalty, in.number("frequency_penalty", {.min = -2, .max = 2}));
  sampling.seed = in.seed("seed");
  read_logit_bias(in, sampling.logit_bias);
}

void read_stop(ObjectReader& in, std::vector<std::string>& stop) {
  set_if_given(stop, in.texts("stop", kMaxStops));
  for (const std::string& text : stop) {
    if (text.empty()) {
      in.refuse("stop", "must not hold empty strings");
    }
  }
}

bool is_token_id(const InputJson& value) {
  const std::optional<std::int64_t> number = integer_value(value);
  return number && *number >= 0 && *number <= std::numeric_limits<TokenId>::max();
}

Error no_such_token(const std::string& field, TokenId id, std::int32_t vocab_size) {
  return make_error(
      ErrorCode::kInvalidField,
      field + " names token " + std::to_string(id) + "; the model's last is " + std::to_string(vocab_size - 1), field);
}

Status check_logit_bias(const engine::SamplingOptions& sampling, std::int32_t vocab_size) {
  if (!sampling.logit_bias.empty() && sampling.logit_bias.rbegin()->first >= vocab_size) {
    return no_such_token("logit_bias", sampling.logit_bias.rbegin()->first, vocab_size);
  }
  return {};
}

}  // namespace promptcached::api
