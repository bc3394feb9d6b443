// Rotary position embedding: from positions to the angles' cosines and sines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "core/model/model_config.h"

namespace promptcached::model {

struct RopeAngles {
  at::Tensor cos;  // [rows, head_dim / 2] fp32
  at::Tensor sin;  // the same
};

class Rope final {
 public:
  Rope(const RopeConfig& config, std::int64_t head_dim, at::Device device);

  RopeAngles angles(std::span<const std::int32_t> positions) const;

  // Radians a step of one position turns each pair of dimensions by.
  const at::Tensor& frequencies() const { return frequencies_; }  // [head_dim / 2] fp32

 private:
  at::Tensor frequencies_;
};

}  // namespace promptcached::model
