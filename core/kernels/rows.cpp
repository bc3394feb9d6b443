#include "core/kernels/rows.h"

#include <cmath>
#include <cstring>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/rows.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

void norm_row(const float* x, const float* weight, std::int64_t count, float eps, float* out) {
  const Tag d;
  auto squares = hn::Zero(d);
  auto more_squares = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const auto first = hn::LoadU(d, x + i);
    const auto second = hn::LoadU(d, x + i + kLanes);
    squares = hn::MulAdd(first, first, squares);
    more_squares = hn::MulAdd(second, second, more_squares);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(squares, more_squares)));
  for (; i < count; ++i) {
    total += x[i] * x[i];
  }
  const float scale = 1.0F / std::sqrt(total / static_cast<float>(count) + eps);
  for_each_vector(count, [=](auto tag, std::int64_t at) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(tag, weight + at), hn::Mul(hn::LoadU(tag, x + at), hn::Set(tag, scale))), tag,
               out + at);
  });
}

// 1 / (1 + exp(-x))
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0F);
  // exp(-|x|) never overflows: for x < 0 the result is what is left to 1.
  const auto e = exp2_of(d, hn::Mul(hn::Abs(x), hn::Set(d, -std::numbers::log2e_v<float>)));
  const auto positive = hn::Div(one, hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, positive), positive);
}

void silu_gate_row(const float* gate, const float* up, std::int64_t count, float* out) {
  for_each_vector(count, [=](auto tag, std::int64_t at) HWY_ATTR {
    const auto x = hn::LoadU(tag, gate + at);
    hn::StoreU(hn::Mul(hn::Mul(x, sigmoid(tag, x)), hn::LoadU(tag, up + at)), tag, out + at);
  });
}

// 0.5 x (1 + tanh(u)) is x * sigmoid(2u), with u = sqrt(2 / pi) (x + 0.044715 x³).
void gelu_gate_row(const float* gate, const float* up, std::int64_t count, float* out) {
  for_each_vector(count, [=](auto tag, std::int64_t at) HWY_ATTR {
    const auto x = hn::LoadU(tag, gate + at);
    const auto cube = hn::Mul(hn::Mul(x, x), x);
    const auto twice = hn::Mul(hn::MulAdd(cube, hn::Set(tag, 0.044715F), x), hn::Set(tag, 1.5957691216F));
    hn::StoreU(hn::Mul(hn::Mul(x, sigmoid(tag, twice)), hn::LoadU(tag, up + at)), tag, out + at);
  });
}

void rotate_row(const float* x, const float* cos, const float* sin, std::int64_t half, std::int64_t head_dim,
                float factor, float* out) {
  for_each_vector(half, [=](auto tag, std::int64_t at) HWY_ATTR {
    const auto f = hn::Set(tag, factor);
    const auto first = hn::Mul(hn::LoadU(tag, x + at), f);
    const auto second = hn::Mul(hn::LoadU(tag, x + half + at), f);
    const auto c = hn::LoadU(tag, cos + at);
    const auto s = hn::LoadU(tag, sin + at);
    hn::StoreU(hn::Sub(hn::Mul(first, c), hn::Mul(second, s)), tag, out + at);
    hn::StoreU(hn::Add(hn::Mul(second, c), hn::Mul(first, s)), tag, out + half + at);
  });
  for (std::int64_t i = 2 * half; i < head_dim; ++i) {
    out[i] = x[i] * factor;
  }
}

void store_fp16_row(const float* x, std::int64_t count, void* out) {
  auto* numbers = static_cast<hwy::float16_t*>(out);
  for_each_vector(count, [=](auto tag, std::int64_t at) HWY_ATTR {
    const hn::Rebind<hwy::float16_t, decltype(tag)> half;
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(tag, x + at)), half, numbers + at);
  });
}

void load_fp16_row(const void* x, std::int64_t count, float* out) {
  const auto* numbers = static_cast<const hwy::float16_t*>(x);
  for_each_vector(count, [=](auto tag, std::int64_t at) HWY_ATTR {
    const hn::Rebind<hwy::float16_t, decltype(tag)> half;
    hn::StoreU(hn::PromoteTo(tag, hn::LoadU(half, numbers + at)), tag, out + at);
  });
}

}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace promptcached::kernels {
namespace {

HWY_EXPORT(norm_row);
HWY_EXPORT(silu_gate_row);
HWY_EXPORT(gelu_gate_row);
HWY_EXPORT(rotate_row);
HWY_EXPORT(store_fp16_row);
HWY_EXPORT(load_fp16_row);

void store_bf16_row(const float* x, std::int64_t count, void* out) {
  auto* numbers = static_cast<std::uint16_t*>(out);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    const bool is_number = x[i] == x[i];
    // To the nearest, ties to even; a NaN keeps being one.
    numbers[i] = static_cast<std::uint16_t>(is_number ? (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U : 0x7FC0U);
  }
}

void load_bf16_row(const void* x, std::int64_t count, float* out) {
  const auto* numbers = static_cast<const std::uint16_t*>(x);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(numbers[i]) << 16U;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

}  // namespace

void rms_norm(const float* x, const float* weight, std::int64_t count, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(norm_row)(x, weight, count, eps, out);
}

void activate_gate(Gate activation, const float* gate, const float* up, std::int64_t count, float* out) {
  if (activation == Gate::kSilu) {
    HWY_DYNAMIC_DISPATCH(silu_gate_row)(gate, up, count, out);
  } else {
    HWY_DYNAMIC_DISPATCH(gelu_gate_row)(gate, up, count, out);
  }
}

void rotate(const float* x, const float* cos, const float* sin, std::int64_t half, std::int64_t head_dim, float factor,
            float* out) {
  HWY_DYNAMIC_DISPATCH(rotate_row)(x, cos, sin, half, head_dim, factor, out);
}

void store_as(KvFormat format, const float* x, std::int64_t count, void* out) {
  switch (format) {
    case KvFormat::kFp32:
      std::memcpy(out, x, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case KvFormat::kFp16:
      HWY_DYNAMIC_DISPATCH(store_fp16_row)(x, count, out);
      return;
    case KvFormat::kBf16:
      store_bf16_row(x, count, out);
      return;
  }
}

void load_as(KvFormat format, const void* x, std::int64_t count, float* out) {
  switch (format) {
    case KvFormat::kFp32:
      std::memcpy(out, x, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case KvFormat::kFp16:
      HWY_DYNAMIC_DISPATCH(load_fp16_row)(x, count, out);
      return;
    case KvFormat::kBf16:
      load_bf16_row(x, count, out);
      return;
  }
}

}  // namespace promptcached::kernels
#endif
