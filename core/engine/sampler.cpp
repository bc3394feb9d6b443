#include "core/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "core/kernels/vocabulary.h"

namespace promptcached::engine {
namespace {

constexpr float kGreedyTemperature = 1e-4F;

// Vigna's SplitMix64: a 64-bit value well mixed from a counter.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// In [0, 1), from the seed and the number of the draw.
double uniform(std::uint64_t seed, std::uint64_t draw) {
  return static_cast<double>(mix(mix(seed) + draw) >> 11) * 0x1.0p-53;
}

bool is_set(std::span<const std::uint32_t> bits, TokenId token) {
  const std::size_t index = static_cast<std::size_t>(token);
  return ((bits[index / 32] >> (index % 32)) & 1) != 0;
}

struct Candidate {
  TokenId token;
  float logit;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

double log_sum_exp(std::span<const float> logits, float highest) {
  return static_cast<double>(highest) + std::log(kernels::exp_sum(logits, highest));
}

// The `count` best tokens, best first.
std::vector<Candidate> best(std::span<const float> logits, std::size_t count) {
  count = std::min(count, logits.size());
  std::vector<Candidate> kept;  // a heap, the worst in front: most tokens are compared with that one alone
  kept.reserve(count + 1);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (kept.size() == count && !(logits[i] > kept.front().logit)) {
      continue;  // of equals the first is better
    }
    kept.push_back({static_cast<TokenId>(i), logits[i]});
    std::push_heap(kept.begin(), kept.end(), better);
    if (kept.size() > count) {
      std::pop_heap(kept.begin(), kept.end(), better);
      kept.pop_back();
    }
  }
  std::sort_heap(kept.begin(), kept.end(), better);
  return kept;
}

// The best tokens whose probabilities sum to at least `top_p` of all; few are needed as a rule, so the sorted part
// grows until it is enough.
std::vector<Candidate> nucleus(std::span<const float> logits, float top_p) {
  const double total = log_sum_exp(logits, kernels::highest(logits).value);
  for (std::size_t count = 64;; count *= 8) {
    std::vector<Candidate> candidates = best(logits, count);
    double mass = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      mass += std::exp(static_cast<double>(candidates[i].logit) - total);
      if (mass >= static_cast<double>(top_p)) {
        candidates.resize(i + 1);
        return candidates;
      }
    }
    if (candidates.size() == logits.size()) {
      return candidates;
    }
  }
}

TokenId pick(const std::vector<Candidate>& candidates, double u) {
  const float highest =
      std::max_element(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.logit < b.logit;
      })->logit;
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += std::exp(static_cast<double>(candidate.logit - highest));
  }
  double left = u * total;
  for (const Candidate& candidate : candidates) {
    left -= std::exp(static_cast<double>(candidate.logit - highest));
    if (left < 0) {
      return candidate.token;
    }
  }
  // Rounding: the last one that has any probability.
  const auto last = std::find_if(candidates.rbegin(), candidates.rend(), [](const Candidate& candidate) {
    return candidate.logit > -std::numeric_limits<float>::infinity();
  });
  return last != candidates.rend() ? last->token : candidates.front().token;
}

// As pick(), of a whole vocabulary: stretches of it are passed over by their sums.
TokenId pick_of_all(std::span<const float> logits, double u) {
  constexpr std::size_t kStretch = 1024;
  const float highest = kernels::highest(logits).value;
  std::vector<double> sums;
  double total = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kStretch) {
    sums.push_back(kernels::exp_sum(logits.subspan(begin, std::min(kStretch, logits.size() - begin)), highest));
    total += sums.back();
  }
  double left = u * total;
  std::size_t stretch = 0;
  while (stretch + 1 < sums.size() && left >= sums[stretch]) {
    left -= sums[stretch];
    ++stretch;
  }
  const std::size_t begin = stretch * kStretch;
  std::size_t last = begin;  // of those that have any probability: rounding may leave a rest behind all of them
  for (std::size_t i = begin; i < std::min(begin + kStretch, logits.size()); ++i) {
    const double weight = std::exp(static_cast<double>(logits[i] - highest));
    if (weight > 0) {
      last = i;
      left -= weight;
      if (left < 0) {
        break;
      }
    }
  }
  return static_cast<TokenId>(last);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, std::span<const TokenId> prompt, std::int32_t top_logprobs)
    : options_(options), top_logprobs_(top_logprobs) {
  seed_ = options.seed.has_value()
              ? *options.seed
              : (static_cast<std::uint64_t>(std::random_device{}()) << 32) ^ std::random_device{}();
  if (needs_prompt(options)) {
    prompt_tokens_.assign(prompt.begin(), prompt.end());
    std::sort(prompt_tokens_.begin(), prompt_tokens_.end());
    prompt_tokens_.erase(std::unique(prompt_tokens_.begin(), prompt_tokens_.end()), prompt_tokens_.end());
  }
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, std::span<const std::uint32_t> allowed) {
  const kernels::Highest highest = kernels::highest(logits);
  const double total = log_sum_exp(logits, highest.value);
  if (!std::isfinite(total)) {
    return make_error(ErrorCode::kInternal, "the model gave logits that are not numbers");
  }
  SampledToken result;
  const bool plain = options_.logit_bias.empty() && options_.repetition_penalty == 1.0F &&
                     options_.presence_penalty == 0.0F && options_.frequency_penalty == 0.0F;
  if (plain && options_.temperature < kGreedyTemperature) {
    const kernels::Highest best = allowed.empty() ? highest : kernels::highest_of(logits, allowed);
    result.token = static_cast<TokenId>(best.index);
  } else {
    std::vector<float> adjusted(logits.begin(), logits.end());
    adjust(adjusted);
    if (!allowed.empty()) {
      kernels::keep_only(adjusted, allowed);  // last: no bias brings back what is not allowed
    }
    result.token = draw(adjusted);
  }
  if (result.token < 0 || (!allowed.empty() && !is_set(allowed, result.token))) {
    return make_error(ErrorCode::kInternal, "no token that the answer's grammar allows has a probability");
  }
  result.logprob = static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(result.token)]) - total);
  if (top_logprobs_ > 0) {
    for (const Candidate& candidate : best(logits, static_cast<std::size_t>(top_logprobs_))) {
      result.top.emplace_back(candidate.token, static_cast<float>(static_cast<double>(candidate.logit) - total));
    }
  }
  ++generated_[result.token];
  ++drawn_;
  return result;
}

void Sampler::adjust(std::vector<float>& logits) const {
  const auto penalise = [&](TokenId token) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  };
  if (options_.repetition_penalty != 1.0F) {
    for (const TokenId token : prompt_tokens_) {
      penalise(token);
    }
    for (const auto& [token, count] : generated_) {
      if (!std::binary_search(prompt_tokens_.begin(), prompt_tokens_.end(), token)) {
        penalise(token);
      }
    }
  }
  for (const auto& [token, count] : generated_) {
    logits[static_cast<std::size_t>(token)] -=
        options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
  }
  for (const auto& [token, bias] : options_.logit_bias) {
    if (static_cast<std::size_t>(token) < logits.size()) {
      logits[static_cast<std::size_t>(token)] += bias;
    }
  }
}

TokenId Sampler::draw(std::vector<float>& logits) {
  if (options_.temperature < kGreedyTemperature) {
    return static_cast<TokenId>(kernels::highest(logits).index);
  }
  for (float& logit : logits) {
    logit /= options_.temperature;
  }
  if (options_.top_k == 0 && options_.top_p == 1.0F && options_.min_p == 0.0F) {
    return pick_of_all(logits, uniform(seed_, drawn_));
  }
  std::vector<Candidate> candidates;
  if (options_.top_k > 0) {
    candidates = best(logits, static_cast<std::size_t>(options_.top_k));
    if (options_.top_p < 1.0F) {
      std::vector<float> kept(candidates.size());
      std::transform(candidates.begin(), candidates.end(), kept.begin(), [](const Candidate& c) { return c.logit; });
      candidates.resize(nucleus(kept, options_.top_p).size());
    }
  } else if (options_.top_p < 1.0F) {
    candidates = nucleus(logits, options_.top_p);
  } else {
    candidates.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      candidates.push_back({static_cast<TokenId>(i), logits[i]});
    }
  }
  if (options_.min_p > 0.0F) {
    const float highest = std::max_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
                            return a.logit < b.logit;
                          })->logit;
    const float floor = highest + std::log(options_.min_p);
    std::erase_if(candidates, [floor](const Candidate& candidate) { return candidate.logit < floor; });
  }
  return pick(candidates, uniform(seed_, drawn_));
}

}  // namespace promptcached::engine
