#include "core/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "core/model/aten.h"

namespace promptcached::model {
namespace {

// In fp32 throughout, step by step as transformers do, so that far positions turn by the same angles.
at::Tensor powers(double theta, std::int64_t dims) {
  const at::Tensor exponents = at::arange(0, dims, 2, at::kLong).to(at::kFloat) / static_cast<double>(dims);
  return at::pow(theta, exponents);
}

// Theta grows with the text, once that is longer than in training (NTK-aware scaling).
at::Tensor dynamic_frequencies(const RopeConfig& config, std::int64_t dims, std::int64_t length) {
  const auto original = static_cast<double>(config.original_max_positions);
  const double longest = std::max(original, static_cast<double>(length));
  const double growth = config.factor * longest / original - (config.factor - 1);
  const auto size = static_cast<double>(dims);
  return 1.0 / powers(config.theta * std::pow(growth, size / (size - 2)), dims);
}

// Llama 3's scaling: slow turns are divided by `factor`, fast ones stay, those between are blended.
at::Tensor llama3_frequencies(const RopeConfig& config, const at::Tensor& frequencies) {
  const auto original = static_cast<double>(config.original_max_positions);
  const at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  const at::Tensor blend =
      (original / wavelengths - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  const at::Tensor blended = (1 - blend) * frequencies / config.factor + blend * frequencies;
  const at::Tensor slow = wavelengths > original / config.low_freq_factor;
  const at::Tensor fast = wavelengths < original / config.high_freq_factor;
  return at::where(slow, frequencies / config.factor, at::where(fast, frequencies, blended));
}

// YaRN (Peng et al. 2023): the same idea, blended linearly over the pairs between two numbers of turns.
at::Tensor yarn_frequencies(const RopeConfig& config, std::int64_t dims) {
  const auto size = static_cast<double>(dims);
  const auto pair_of = [&](double turns) {  // the dimension that turns so often over the original length
    const auto original = static_cast<double>(config.original_max_positions);
    return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
  };
  double low = pair_of(config.beta_fast);
  double high = pair_of(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) {
    high += 0.001;
  }
  const at::Tensor stretched = ((at::arange(dims / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor wide = powers(config.theta, dims);
  return 1.0 / (config.factor * wide) * stretched + 1.0 / wide * (1 - stretched);
}

double yarn_attention_factor(const RopeConfig& config) {
  const auto mscale = [&](double weight) {
    return config.factor <= 1 ? 1.0 : 0.1 * weight * std::log(config.factor) + 1.0;
  };
  if (config.mscale && config.mscale_all_dim) {
    return mscale(*config.mscale) / mscale(*config.mscale_all_dim);
  }
  return mscale(1.0);
}

// `factors` as a tensor, if there is one for each pair of dimensions.
at::Tensor factors_of(const std::vector<double>& factors, std::int64_t dims, const char* fields) {
  if (static_cast<std::int64_t>(factors.size()) != dims / 2) {
    throw std::runtime_error("rope scaling needs " + std::to_string(dims / 2) + " numbers in " + fields + ", not " +
                             std::to_string(factors.size()));
  }
  return at::tensor(factors, at::kFloat);
}

at::Tensor long_rope_frequencies(const RopeConfig& config, std::int64_t dims, std::int64_t length) {
  const bool is_long = length > config.original_max_positions;
  const at::Tensor factors = is_long ? factors_of(config.long_factor, dims, "long_factor")
                                     : factors_of(config.short_factor, dims, "short_factor");
  return 1.0 / (factors * powers(config.theta, dims));
}

double long_rope_attention_factor(const RopeConfig& config) {
  const auto original = static_cast<double>(config.original_max_positions);
  return config.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(config.factor) / std::log(original));
}

}  // namespace

Rope::Rope(const RopeConfig& config, std::int64_t dims, std::int64_t length, at::Device device) {
  switch (config.kind) {
    case RopeKind::kDefault:
      frequencies_ = 1.0 / powers(config.theta, dims);
      break;
    case RopeKind::kLinear:
      frequencies_ = 1.0 / powers(config.theta, dims) / config.factor;
      break;
    case RopeKind::kDynamic:
      frequencies_ = dynamic_frequencies(config, dims, length);
      break;
    case RopeKind::kLlama3:
      frequencies_ = llama3_frequencies(config, 1.0 / powers(config.theta, dims));
      break;
    case RopeKind::kYarn:
      frequencies_ = yarn_frequencies(config, dims);
      attention_factor_ = config.attention_factor.value_or(yarn_attention_factor(config));
      break;
    case RopeKind::kLongRope:
      frequencies_ = long_rope_frequencies(config, dims, length);
      attention_factor_ = config.attention_factor.value_or(long_rope_attention_factor(config));
      break;
    case RopeKind::kDivided:
      frequencies_ = 1.0 / powers(config.theta, dims) / factors_of(config.divisors, dims, "factors");
      break;
  }
  frequencies_ = frequencies_.to(device);
}

RopeAngles Rope::angles(const at::Tensor& positions) const {
  const at::Tensor angles = positions.unsqueeze(1) * frequencies_;
  RopeAngles result{angles.cos(), angles.sin()};
  if (attention_factor_ != 1.0) {
    result.cos.mul_(attention_factor_);
    result.sin.mul_(attention_factor_);
  }
  return result;
}

}  // namespace promptcached::model
