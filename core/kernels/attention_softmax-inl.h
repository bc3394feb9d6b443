// Number formats and score rules of the attention loops, for the instruction set in HWY_TARGET.
#if defined(PROMPTCACHED_KERNELS_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PROMPTCACHED_KERNELS_ATTENTION_SOFTMAX_INL_H_
#undef PROMPTCACHED_KERNELS_ATTENTION_SOFTMAX_INL_H_
#else
#define PROMPTCACHED_KERNELS_ATTENTION_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <numbers>

#include "core/kernels/key_blocks.h"
#include "core/kernels/query_blocks.h"
#include "core/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

// One vector of `D` from numbers in memory.
template <class D>
HWY_INLINE hn::Vec<D> load_fp32(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_fp32(D d, const T* p) {
  const hn::Rebind<T, D> half;
  return hn::PromoteTo(d, hn::LoadU(half, p));
}

template <typename T>
HWY_INLINE void convert(const T* from, std::int64_t count, float* to) {
  for_each_vector(count, [=](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(load_fp32(d, from + i), d, to + i); });
}

// c * tanh(s / c), both in units of log 2.
template <class D>
HWY_INLINE hn::Vec<D> capped(D d, hn::Vec<D> s, float cap) {
  const auto magnitude = hn::Abs(s);
  const auto e = exp2_of(d, hn::Mul(magnitude, hn::Set(d, -2.0F / cap)));  // exp(-2 |x|)
  const auto one = hn::Set(d, 1.0F);
  const auto tanh = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  return hn::CopySign(hn::Mul(tanh, hn::Set(d, cap * std::numbers::log2e_v<float>)), s);
}

// Cap, slopes and window.
template <class D>
HWY_NOINLINE void apply_rule(D d, const KeyBlock& keys, const QueryBlock& queries, const AttentionRule& rule,
                             float* scores) {
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t key = 0; key < keys.keys; ++key) {
    for (std::int64_t i = 0; i < queries.width; i += lanes) {
      float* at = scores + key * queries.width + i;
      auto s = hn::LoadU(d, at);
      if (rule.softcap > 0) {
        s = capped(d, s, rule.softcap);
      }
      if (rule.needs_positions()) {
        const auto distance =
            hn::Sub(hn::LoadU(d, queries.positions + i), hn::Set(d, keys.positions[static_cast<std::size_t>(key)]));
        if (rule.slopes != nullptr) {
          s = hn::NegMulAdd(distance, hn::LoadU(d, queries.slopes + i), s);
        }
        if (rule.window > 0) {
          s = hn::IfThenElse(hn::Ge(distance, hn::Set(d, rule.window)), hidden, s);
        }
      }
      hn::StoreU(s, d, at);
    }
  }
}

// Hides keys behind their pieces' limits.
template <class D>
HWY_NOINLINE void apply_limits(D d, const KeyBlock& keys, const QueryBlock& queries, float* scores) {
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN float limits[kLanes];
  float* chunk_scores = scores;
  for (const KeyChunk& chunk : keys.parts()) {
    for (std::int64_t i = 0; i < queries.width && chunk.piece->limits != nullptr; i += lanes) {
      for (std::int64_t j = 0; j < lanes; ++j) {
        limits[j] = static_cast<float>(chunk.piece->limits[queries.rows[i + j]] - chunk.first);
      }
      const auto limit = hn::Load(d, limits);
      for (std::int64_t key = 0; key < chunk.count; ++key) {
        float* at = chunk_scores + key * queries.width + i;
        const auto seen = hn::Lt(hn::Set(d, static_cast<float>(key)), limit);
        hn::StoreU(hn::IfThenElse(seen, hn::LoadU(d, at), hidden), d, at);
      }
    }
    chunk_scores += chunk.count * queries.width;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
