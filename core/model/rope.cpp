#include "core/model/rope.h"

#include <cmath>
#include <numbers>

#include "core/model/aten.h"

namespace promptcached::model {
namespace {

// Llama 3's scaling: slow turns are divided by `factor`, fast ones stay, those between are blended.
at::Tensor scale_llama3(const at::Tensor& frequencies, const RopeConfig& config) {
  const auto original = static_cast<double>(config.original_max_positions);
  const at::Tensor wavelengths = 2 * std::numbers::pi / frequencies;
  const at::Tensor blend =
      (original / wavelengths - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  const at::Tensor blended = (1 - blend) * frequencies / config.factor + blend * frequencies;
  const at::Tensor slow = wavelengths > original / config.low_freq_factor;
  const at::Tensor fast = wavelengths < original / config.high_freq_factor;
  return at::where(slow, frequencies / config.factor, at::where(fast, frequencies, blended));
}

}  // namespace

Rope::Rope(const RopeConfig& config, std::int64_t head_dim, at::Device device) {
  // In fp32 throughout, step by step as transformers do, so that far positions turn by the same angles.
  const at::Tensor exponents = at::arange(0, head_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(head_dim);
  frequencies_ = 1.0 / at::pow(config.theta, exponents);
  if (config.kind == RopeKind::kLinear) {
    frequencies_ = frequencies_ / config.factor;
  } else if (config.kind == RopeKind::kLlama3) {
    frequencies_ = scale_llama3(frequencies_, config);
  }
  frequencies_ = frequencies_.to(device);
}

RopeAngles Rope::angles(std::span<const std::int32_t> positions) const {
  const auto rows = static_cast<std::int64_t>(positions.size());
  at::Tensor column = at::empty({rows, 1}, at::kFloat);
  float* values = column.data_ptr<float>();
  for (const std::int32_t position : positions) {
    *values++ = static_cast<float>(position);
  }
  const at::Tensor angles = column.to(frequencies_.device()) * frequencies_;
  return {angles.cos(), angles.sin()};
}

}  // namespace promptcached::model
