// The fields that say how tokens are chosen, as all routes that generate share them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/json_reader.h"
#include "core/engine/generate_request.h"

namespace promptcached::api {

inline constexpr std::int32_t kMaxTopLogprobs = 20;

template <typename Target, typename Value>
void set_if_given(Target& target, const std::optional<Value>& value) {
  if (value) {
    target = static_cast<Target>(*value);
  }
}

// temperature, top_p, top_k, min_p, the penalties, seed, logit_bias (ids not yet checked against the vocabulary).
void read_sampling(ObjectReader& in, engine::SamplingOptions& sampling);
void read_stop(ObjectReader& in, std::vector<std::string>& stop);

// Whether it may be one: the vocabulary is not known here.
bool is_token_id(const InputJson& value);

// `field` names a token that the model does not have.
Error no_such_token(const std::string& field, TokenId id, std::int32_t vocab_size);

// Error kInvalidField: logit_bias names a token that the model does not have.
Status check_logit_bias(const engine::SamplingOptions& sampling, std::int32_t vocab_size);

}  // namespace promptcached::api
