// The decoder's steps between matrix products. Each has a version in ATen operations for any device and format, and one
// loop for fp32 on the CPU, where the many passes and calls of the first cost more than the arithmetic.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/model/rope.h"

namespace promptcached::model {

// x / sqrt(mean(x²) + eps) * weight, row by row, computed in fp32.
at::Tensor rms_norm(const at::Tensor& x,       // [rows, hidden]
                    const at::Tensor& weight,  // [hidden]
                    double eps);
at::Tensor rms_norm_generic(const at::Tensor& x, const at::Tensor& weight, double eps);

// silu(gate) * up, in place; the result lies in `gate_up`'s first half.
at::Tensor silu_times(const at::Tensor& gate_up);  // [rows, 2 * intermediate] -> [rows, intermediate]

// New queries, keys and values by head.
struct Heads {
  at::Tensor q;   // [kv_heads, rows, group, head_dim]: the query heads of one KV head stand together
  at::Tensor kv;  // [2 (K, V), kv_heads, rows, head_dim]
};

struct HeadShape {
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;  // query heads a KV head serves
  std::int64_t head_dim = 0;
};

// Splits the fused projection into heads and rotates queries and keys by their positions' angles.
Heads split_and_rotate(const at::Tensor& qkv,  // [rows, (group + 2) * kv_heads * head_dim]
                       const RopeAngles& angles, const HeadShape& shape);
Heads split_and_rotate_generic(const at::Tensor& qkv, const RopeAngles& angles, const HeadShape& shape);

}  // namespace promptcached::model
