// Rotary position embedding: from positions to the angles' cosines and sines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "core/model/model_config.h"

namespace promptcached::model {

struct RopeAngles {
  at::Tensor cos;  // [rows, dims / 2] fp32; undefined where nothing is rotated
  at::Tensor sin;  // the same
};

class Rope final {
 public:
  // Rotates `dims` dimensions of a head. `length`: of the longest text, for the kinds that depend on it.
  Rope(const RopeConfig& config, std::int64_t dims, std::int64_t length, at::Device device);

  RopeAngles angles(const at::Tensor& positions) const;  // [rows] fp32

  // Radians a step of one position turns each pair of dimensions by.
  const at::Tensor& frequencies() const { return frequencies_; }  // [dims / 2] fp32
  // What cosines and sines are multiplied by.
  double attention_factor() const { return attention_factor_; }

 private:
  at::Tensor frequencies_;
  double attention_factor_ = 1.0;
};

}  // namespace promptcached::model
