#include "core/model/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/kernels/rows.h"
#include "core/model/aten.h"
#include "core/model/device.h"
#include "core/model/parallel.h"

namespace promptcached::model {
namespace {

bool is_plain_fp32(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

at::Tensor rotate_generic(const at::Tensor& x,    // [rows, heads, head_dim]
                          const at::Tensor& cos,  // [rows, 1, rotated_dims / 2]
                          const at::Tensor& sin) {
  const std::int64_t half = cos.size(-1);
  const at::Tensor first = x.narrow(-1, 0, half).to(at::kFloat);
  const at::Tensor second = x.narrow(-1, half, half).to(at::kFloat);
  const at::Tensor turned = at::cat({first * cos - second * sin, second * cos + first * sin}, -1).to(x.scalar_type());
  const std::int64_t rest = x.size(-1) - 2 * half;
  return rest == 0 ? turned : at::cat({turned, x.narrow(-1, 2 * half, rest)}, -1);
}

}  // namespace

at::Tensor normalize(const at::Tensor& x, const Norm& norm, const NormConfig& config) {
  if (config.kind == NormKind::kRms) {
    return rms_norm(x, norm.weight, config.eps);
  }
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  return at::layer_norm(x, {x.size(-1)}, optional(norm.weight), optional(norm.bias), config.eps);
}

at::Tensor rms_norm_generic(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
  return (weight * (wide * scale)).to(x.scalar_type());
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
  for_each_run(rows, rows_per_task(hidden), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      kernels::rms_norm(source + row * hidden, factors, hidden, static_cast<float>(eps), target + row * hidden);
    }
  });
  return out;
}

void soft_cap(double cap, at::Tensor* x) { x->div_(cap).tanh_().mul_(cap); }

void activate(Activation activation, at::Tensor* x) {
  switch (activation) {
    case Activation::kSilu:
      at::silu_(*x);
      return;
    case Activation::kGelu:
      at::gelu_(*x);
      return;
    case Activation::kGeluTanh:
      at::gelu_(*x, "tanh");
      return;
    case Activation::kRelu:
      at::relu_(*x);
      return;
  }
}

at::Tensor activate_gate(Activation activation, const at::Tensor& gate_up) {
  const std::int64_t inner = gate_up.size(1) / 2;
  if (is_plain_fp32(gate_up) && (activation == Activation::kSilu || activation == Activation::kGeluTanh)) {
    const kernels::Gate gate = activation == Activation::kSilu ? kernels::Gate::kSilu : kernels::Gate::kGeluTanh;
    auto* numbers = gate_up.mutable_data_ptr<float>();
    for_each_run(gate_up.size(0), rows_per_task(2 * inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        float* first = numbers + row * 2 * inner;
        kernels::activate_gate(gate, first, first + inner, inner, first);
      }
    });
    return gate_up.narrow(1, 0, inner);
  }
  at::Tensor gate = gate_up.narrow(1, 0, inner);
  activate(activation, &gate);
  return gate.mul_(gate_up.narrow(1, inner, inner));
}

Heads split_heads_generic(const at::Tensor& qkv, const RopeAngles& angles, const HeadShape& shape,
                          const HeadSteps& steps) {
  const std::int64_t rows = qkv.size(0);
  const std::int64_t heads = shape.kv_heads * shape.group;
  const at::Tensor by_head = qkv.view({rows, heads + 2 * shape.kv_heads, shape.head_dim});
  const auto prepare = [&](const at::Tensor& x, const at::Tensor& norm) {
    const at::Tensor normed = norm.defined() ? rms_norm_generic(x, norm, steps.norm_eps) : x;
    return steps.rotated_dims > 0 ? rotate_generic(normed, angles.cos.unsqueeze(1), angles.sin.unsqueeze(1)) : normed;
  };
  const at::Tensor queries = prepare(by_head.narrow(1, 0, heads), steps.q_norm);
  Heads result;
  result.q = (queries * steps.query_factor)
                 .view({rows, shape.kv_heads, shape.group, shape.head_dim})
                 .permute({1, 0, 2, 3})
                 .contiguous();
  const at::Tensor keys = prepare(by_head.narrow(1, heads, shape.kv_heads), steps.k_norm).transpose(0, 1);
  const at::Tensor values = by_head.narrow(1, heads + shape.kv_heads, shape.kv_heads).transpose(0, 1);
  result.kv = at::stack({keys, values}).to(steps.kv);
  return result;
}

Heads split_heads(const at::Tensor& qkv, const RopeAngles& angles, const HeadShape& shape, const HeadSteps& steps) {
  if (!is_plain_fp32(qkv)) {
    return split_heads_generic(qkv, angles, shape, steps);
  }
  const std::int64_t rows = qkv.size(0);
  const std::int64_t kv_heads = shape.kv_heads;
  const std::int64_t group = shape.group;
  const std::int64_t head_dim = shape.head_dim;
  const std::int64_t heads = kv_heads * group;
  const std::int64_t half = steps.rotated_dims / 2;
  Heads result;
  result.q = at::empty({kv_heads, rows, group, head_dim}, qkv.options());
  result.kv = at::empty({2, kv_heads, rows, head_dim}, qkv.options().dtype(steps.kv));
  auto* source = qkv.mutable_data_ptr<float>();
  const float* cos = half > 0 ? angles.cos.const_data_ptr<float>() : nullptr;
  const float* sin = half > 0 ? angles.sin.const_data_ptr<float>() : nullptr;
  auto* q = result.q.mutable_data_ptr<float>();
  auto* k = static_cast<std::byte*>(result.kv.mutable_data_ptr());
  const auto head_bytes = head_dim * static_cast<std::int64_t>(result.kv.element_size());
  std::byte* v = k + kv_heads * rows * head_bytes;
  const kernels::KvFormat format = kv_format(steps.kv);
  const auto eps = static_cast<float>(steps.norm_eps);
  const auto prepare = [&](float* from, const at::Tensor& norm, std::int64_t row, float factor, float* to) {
    if (norm.defined()) {
      kernels::rms_norm(from, norm.const_data_ptr<float>(), head_dim, eps, from);
    }
    kernels::rotate(from, cos + row * half, sin + row * half, half, head_dim, factor, to);
  };
  for_each_run(rows, rows_per_task(qkv.size(1)), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> key(static_cast<std::size_t>(head_dim));
    for (std::int64_t row = begin; row < end; ++row) {
      float* in = source + row * (heads + 2 * kv_heads) * head_dim;
      for (std::int64_t head = 0; head < heads; ++head) {
        prepare(in + head * head_dim, steps.q_norm, row, static_cast<float>(steps.query_factor),
                q + (((head / group) * rows + row) * group + head % group) * head_dim);
      }
      for (std::int64_t head = 0; head < kv_heads; ++head) {
        const std::int64_t at = (head * rows + row) * head_bytes;
        prepare(in + (heads + head) * head_dim, steps.k_norm, row, 1.0F, key.data());
        kernels::store_as(format, key.data(), head_dim, k + at);
        kernels::store_as(format, in + (heads + kv_heads + head) * head_dim, head_dim, v + at);
      }
    }
  });
  return result;
}

}  // namespace promptcached::model
