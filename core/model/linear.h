// Matrix products with the model's weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace promptcached::model {

// A matrix [out, in] in the model's own number format, or in 8 bits (core/kernels/int8_linear.h), and a bias.
struct Linear {
  std::int64_t out = 0;
  std::int64_t in = 0;
  at::Tensor weight;  // [out, in], contiguous; undefined if `packed` is not
  at::Tensor packed;  // the matrix in 8 bits, as bytes on the CPU
  at::Tensor bias;    // [out], or undefined
};

Linear dense_linear(at::Tensor weight, at::Tensor bias);

// Rounds the weights to 8 bits, on all threads. The dense ones are let go; they lie on the CPU, in any format.
void pack(Linear* linear);

// x * weight^T + bias
at::Tensor apply(const Linear& linear, const at::Tensor& x);  // [rows, in] -> [rows, out]

// sum += x * weight^T + bias
void add_applied(const Linear& linear, const at::Tensor& x,  // [rows, in]
                 at::Tensor* sum);                           // [rows, out]

}  // namespace promptcached::model
