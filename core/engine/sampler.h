// Sampler: picks the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/engine/generate_request.h"

namespace promptcached::engine {

struct SampledToken {
  TokenId token = 0;
  float logprob = 0;                           // the model's own: before bias, penalties and temperature
  std::vector<std::pair<TokenId, float>> top;  // the model's most likely tokens, best first
};

// One per sequence. Random numbers come from (seed, number of the token) alone, so an answer does not depend on what
// else is in the batch, nor on preemption.
class Sampler {
 public:
  // `prompt`: its token ids, if needs_prompt(options).
  Sampler(const SamplingOptions& options, std::span<const TokenId> prompt, std::int32_t top_logprobs);

  static bool needs_prompt(const SamplingOptions& options) { return options.repetition_penalty != 1.0F; }

  // `logits`: [vocab]. `allowed`: a bit for each token that may be taken (guide::TokenMask), at least one; empty: all.
  // Error kInternal when the logits are not numbers. Counts the token for the penalties.
  Result<SampledToken> sample(std::span<const float> logits, std::span<const std::uint32_t> allowed = {});

 private:
  void adjust(std::vector<float>& logits) const;
  TokenId draw(std::vector<float>& logits);

  SamplingOptions options_;
  std::uint64_t seed_ = 0;
  std::uint64_t drawn_ = 0;
  std::int32_t top_logprobs_ = 0;
  std::unordered_map<TokenId, std::int32_t> generated_;  // token -> how often
  std::vector<TokenId> prompt_tokens_;                   // distinct; only kept when the repetition penalty needs them
};

}  // namespace promptcached::engine
