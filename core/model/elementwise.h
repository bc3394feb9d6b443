// The decoder's steps between matrix products. Each has a version in ATen operations for any device and format, and one
// loop for fp32 on the CPU, where the many passes and calls of the first cost more than the arithmetic.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/model/model_config.h"
#include "core/model/rope.h"

namespace promptcached::model {

// Weights of a norm; those of Gemma's with the one added already.
struct Norm {
  at::Tensor weight;  // [size]; undefined: there is no such norm
  at::Tensor bias;    // [size], or undefined
};

// Row by row: x / sqrt(mean(x²) + eps) * weight, or layer norm.
at::Tensor normalize(const at::Tensor& x,  // [rows, size]
                     const Norm& norm, const NormConfig& config);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rms_norm_generic(const at::Tensor& x, const at::Tensor& weight, double eps);  // [..., size]

// c * tanh(x / c), in place.
void soft_cap(double cap, at::Tensor* x);

// In place.
void activate(Activation activation, at::Tensor* x);

// activation(gate) * up, in place; the result lies in `gate_up`'s first half.
at::Tensor activate_gate(Activation activation,
                         const at::Tensor& gate_up);  // [rows, 2 * intermediate] -> [rows, intermediate]

// New queries, keys and values by head.
struct Heads {
  at::Tensor q;   // [kv_heads, rows, group, head_dim]: the query heads of one KV head stand together
  at::Tensor kv;  // [2 (K, V), kv_heads, rows, head_dim] in the KV format
};

struct HeadShape {
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;  // query heads a KV head serves
  std::int64_t head_dim = 0;
};

// What becomes of queries and keys between projection and attention.
struct HeadSteps {
  at::Tensor q_norm;  // [head_dim]: root mean square norm of each head; undefined: none
  at::Tensor k_norm;
  double norm_eps = 0;
  std::int64_t rotated_dims = 0;  // leading dimensions that angles turn; 0: none
  double query_factor = 1.0;
  at::ScalarType kv = at::kFloat;  // the format that keys and values are rounded to
};

// Splits the fused projection into heads, normalises them, and rotates queries and keys by their positions' angles.
// `qkv` is overwritten.
Heads split_heads(const at::Tensor& qkv,  // [rows, (group + 2) * kv_heads * head_dim]
                  const RopeAngles& angles, const HeadShape& shape, const HeadSteps& steps);
Heads split_heads_generic(const at::Tensor& qkv, const RopeAngles& angles, const HeadShape& shape,
                          const HeadSteps& steps);

}  // namespace promptcached::model
