// Passes over the logits of a whole vocabulary.
#pragma once

#include <cstdint>
#include <span>

namespace promptcached::kernels {

// The largest of `logits`, of which there is at least one; where several are, the first. Numbers that are none (NaN)
// are passed over.
struct Highest {
  std::int64_t index = 0;
  float value = 0;
};
Highest highest(std::span<const float> logits);

// The same of those alone whose bit is set: bit i % 32 of word i / 32 for logit i, all words there. {-1, -inf} when
// none of them is above -inf.
Highest highest_of(std::span<const float> logits, std::span<const std::uint32_t> bits);

// Makes -inf of those whose bit is not set.
void keep_only(std::span<float> logits, std::span<const std::uint32_t> bits);

// The sum of exp((logit - highest) * factor), to about 1e-6 of itself. `highest` is that of all logits; factor > 0.
// NaN when a logit is none or not finite; -inf counts as nothing.
double exp_sum(std::span<const float> logits, float highest, float factor = 1.0F);

}  // namespace promptcached::kernels
