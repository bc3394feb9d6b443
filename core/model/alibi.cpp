#include "core/model/alibi.h"

#include <bit>
#include <cmath>
#include <vector>

#include "core/model/aten.h"

namespace promptcached::model {
namespace {

// 2^(-max_bias / n), 2^(-2 max_bias / n), …: n of them.
std::vector<float> geometric(std::int64_t n, double max_bias) {
  std::vector<float> slopes;
  for (std::int64_t i = 1; i <= n; ++i) {
    slopes.push_back(static_cast<float>(std::exp2(-max_bias * static_cast<double>(i) / static_cast<double>(n))));
  }
  return slopes;
}

std::vector<float> every_other(const std::vector<float>& slopes, std::size_t first) {
  std::vector<float> some;
  for (std::size_t i = first; i < slopes.size(); i += 2) {
    some.push_back(slopes[i]);
  }
  return some;
}

}  // namespace

at::Tensor alibi_slopes(const AlibiConfig& config, std::int64_t heads) {
  const auto count = static_cast<std::uint64_t>(heads);
  std::vector<float> slopes;
  std::vector<float> more;
  if (config.kind == AlibiConfig::Kind::kMpt) {
    // The series for the next power of two: its even members first, then its odd ones.
    const std::vector<float> series = geometric(static_cast<std::int64_t>(std::bit_ceil(count)), config.max_bias);
    if (std::has_single_bit(count)) {
      slopes = series;
    } else {
      slopes = every_other(series, 1);
      more = every_other(series, 0);
    }
  } else {
    // The series for the power of two below, then the odd members of that for twice as many.
    const auto below = static_cast<std::int64_t>(std::bit_floor(count));
    slopes = geometric(below, config.max_bias);
    more = every_other(geometric(2 * below, config.max_bias), 0);
  }
  slopes.insert(slopes.end(), more.begin(), more.end());
  slopes.resize(static_cast<std::size_t>(heads));
  at::Tensor tensor = at::tensor(slopes, at::kFloat);
  if (config.rounds_to_bf16) {
    tensor = tensor.to(at::kBFloat16).to(at::kFloat);
  }
  return tensor * config.scale;
}

}  // namespace promptcached::model
