// How far one next-token distribution lies from another.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace promptcached {

inline double log_sum_exp(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - highest);
  }
  return highest + std::log(sum);
}

// KL(p || q) in nats, of logits.
inline double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_sum = log_sum_exp(p);
  const double q_sum = log_sum_exp(q);
  double total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double p_log = p[i] - p_sum;
    total += std::exp(p_log) * (p_log - (q[i] - q_sum));
  }
  return total;
}

}  // namespace promptcached
