#include "core/model/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/model/aten.h"

namespace promptcached::model {
namespace {

// Numbers below which a second thread costs more than it saves.
constexpr std::int64_t kNumbersPerTask = 16 * 1024;

std::int64_t rows_per_task(std::int64_t row_numbers) {
  return std::max<std::int64_t>(1, kNumbersPerTask / std::max<std::int64_t>(1, row_numbers));
}

bool is_plain_fp32(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

// Sum of squares with eight running sums, so that the compiler can use vectors.
float sum_of_squares(const float* x, std::int64_t n) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      sums[lane] += x[i + lane] * x[i + lane];
    }
  }
  for (; i < n; ++i) {
    sums[0] += x[i] * x[i];
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Rotates one head: pair i is (x[i], x[i + half]).
void rotate_head(const float* x, const float* cos, const float* sin, std::int64_t half, float* out) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float first = x[i];
    const float second = x[i + half];
    out[i] = first * cos[i] - second * sin[i];
    out[i + half] = second * cos[i] + first * sin[i];
  }
}

at::Tensor rotate_generic(const at::Tensor& x,    // [rows, heads, head_dim]
                          const at::Tensor& cos,  // [rows, 1, head_dim / 2]
                          const at::Tensor& sin) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half).to(at::kFloat);
  const at::Tensor second = x.narrow(-1, half, half).to(at::kFloat);
  return at::cat({first * cos - second * sin, second * cos + first * sin}, -1).to(x.scalar_type());
}

}  // namespace

at::Tensor rms_norm_generic(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
  return weight * (wide * scale).to(x.scalar_type());
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!is_plain_fp32(x) || !is_plain_fp32(weight)) {
    return rms_norm_generic(x, weight, eps);
  }
  const std::int64_t rows = x.size(0);
  const std::int64_t hidden = x.size(1);
  at::Tensor out = at::empty_like(x);
  const float* source = x.const_data_ptr<float>();
  const float* factors = weight.const_data_ptr<float>();
  float* target = out.mutable_data_ptr<float>();
  at::parallel_for(0, rows, rows_per_task(hidden), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* in = source + row * hidden;
      float* to = target + row * hidden;
      const float mean = sum_of_squares(in, hidden) / static_cast<float>(hidden);
      const float scale = 1.0F / std::sqrt(mean + static_cast<float>(eps));
      for (std::int64_t i = 0; i < hidden; ++i) {
        to[i] = factors[i] * (in[i] * scale);
      }
    }
  });
  return out;
}

at::Tensor silu_times(const at::Tensor& gate_up) {
  const std::int64_t inner = gate_up.size(1) / 2;
  at::Tensor gate = gate_up.narrow(1, 0, inner);
  at::silu_(gate);
  return gate.mul_(gate_up.narrow(1, inner, inner));
}

Heads split_and_rotate_generic(const at::Tensor& qkv, const RopeAngles& angles, const HeadShape& shape) {
  const std::int64_t rows = qkv.size(0);
  const std::int64_t heads = shape.kv_heads * shape.group;
  const at::Tensor by_head = qkv.view({rows, heads + 2 * shape.kv_heads, shape.head_dim});
  const at::Tensor rotated =
      rotate_generic(by_head.narrow(1, 0, heads + shape.kv_heads), angles.cos.unsqueeze(1), angles.sin.unsqueeze(1));
  Heads result;
  result.q = rotated.narrow(1, 0, heads)
                 .view({rows, shape.kv_heads, shape.group, shape.head_dim})
                 .permute({1, 0, 2, 3})
                 .contiguous();
  const at::Tensor keys = rotated.narrow(1, heads, shape.kv_heads).transpose(0, 1);
  const at::Tensor values = by_head.narrow(1, heads + shape.kv_heads, shape.kv_heads).transpose(0, 1);
  result.kv = at::stack({keys, values});
  return result;
}

Heads split_and_rotate(const at::Tensor& qkv, const RopeAngles& angles, const HeadShape& shape) {
  if (!is_plain_fp32(qkv)) {
    return split_and_rotate_generic(qkv, angles, shape);
  }
  const std::int64_t rows = qkv.size(0);
  const auto [kv_heads, group, head_dim] = shape;
  const std::int64_t heads = kv_heads * group;
  const std::int64_t half = head_dim / 2;
  Heads result;
  result.q = at::empty({kv_heads, rows, group, head_dim}, qkv.options());
  result.kv = at::empty({2, kv_heads, rows, head_dim}, qkv.options());
  const float* source = qkv.const_data_ptr<float>();
  const float* cos = angles.cos.const_data_ptr<float>();
  const float* sin = angles.sin.const_data_ptr<float>();
  float* q = result.q.mutable_data_ptr<float>();
  float* k = result.kv.mutable_data_ptr<float>();
  float* v = k + kv_heads * rows * head_dim;
  at::parallel_for(0, rows, rows_per_task(qkv.size(1)),
                   [&, kv = kv_heads, g = group, d = head_dim](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const float* in = source + row * (heads + 2 * kv) * d;
                       const float* row_cos = cos + row * half;
                       const float* row_sin = sin + row * half;
                       for (std::int64_t head = 0; head < heads; ++head) {
                         float* to = q + (((head / g) * rows + row) * g + head % g) * d;
                         rotate_head(in + head * d, row_cos, row_sin, half, to);
                       }
                       for (std::int64_t head = 0; head < kv; ++head) {
                         rotate_head(in + (heads + head) * d, row_cos, row_sin, half, k + (head * rows + row) * d);
                         std::memcpy(v + (head * rows + row) * d, in + (heads + kv + head) * d, d * sizeof(float));
                       }
                     }
                   });
  return result;
}

}  // namespace promptcached::model
