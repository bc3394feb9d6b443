// Merging two partial attention results of one query; see attention_backend.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace promptcached::model {

// sum += part: both are weighted by their share of the exponentials.
inline void merge_row(const float* part, float part_lse, std::int64_t head_dim, float* sum, float* sum_lse) {
  const float largest = std::max(part_lse, *sum_lse);
  const float part_share = std::exp(part_lse - largest);
  const float sum_share = std::exp(*sum_lse - largest);
  const float total = part_share + sum_share;
  const float a = sum_share / total;
  const float b = part_share / total;
  for (std::int64_t i = 0; i < head_dim; ++i) {
    sum[i] = sum[i] * a + part[i] * b;
  }
  *sum_lse = largest + std::log(total);
}

}  // namespace promptcached::model
