#include "core/kernels/attention.h"

#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/kernels/attention_softmax-inl.h"
#include "core/kernels/attention_wide-inl.h"
#if HWY_TARGET != HWY_SCALAR  // which has no vectors of four
#include "core/kernels/attention_narrow-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

template <typename T>
void attend(const AttentionTask& task) {
  const std::int64_t queries = static_cast<std::int64_t>(task.rows.size()) * task.group;
  const float factor = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(task.head_dim));
#if HWY_TARGET != HWY_SCALAR
  if (queries <= kMostNarrow && task.head_dim % kLanes == 0) {
    attend_narrow<T>(task, factor);
    return;
  }
#endif
  constexpr std::int64_t kStep = static_cast<std::int64_t>(kMostQueryBlocks) * kWidest;
  for (std::int64_t first = 0; first < queries; first += kStep) {
    attend_wide<T>(task, first, std::min(kStep, queries - first), factor);
  }
}

void compute_attention(const AttentionTask& task) {
  switch (task.format) {
    case KvFormat::kFp32:
      return attend<float>(task);
    case KvFormat::kFp16:
      return attend<hwy::float16_t>(task);
    case KvFormat::kBf16:
      return attend<hwy::bfloat16_t>(task);
  }
}

// to += from * share
HWY_INLINE void add_scaled(const float* HWY_RESTRICT from, float share, std::int64_t count, float* HWY_RESTRICT to) {
  for_each_vector(count, [=](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, from + i), hn::Set(d, share), hn::LoadU(d, to + i)), d, to + i);
  });
}

void merge_attention(std::span<const AttentionPart> parts, std::int64_t head_dim, float* out) {
  float largest = parts[0].lse;
  for (const AttentionPart& part : parts) {
    largest = std::max(largest, part.lse);
  }
  float total = 0;
  for (const AttentionPart& part : parts) {
    total += std::exp(part.lse - largest);
  }
  std::fill_n(out, head_dim, 0.0F);
  for (const AttentionPart& part : parts) {
    add_scaled(part.out, std::exp(part.lse - largest) / total, head_dim, out);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace promptcached::kernels {

HWY_EXPORT(compute_attention);
HWY_EXPORT(merge_attention);

void compute_attention(const AttentionTask& task) { HWY_DYNAMIC_DISPATCH(compute_attention)(task); }

void merge_attention(std::span<const AttentionPart> parts, std::int64_t head_dim, float* out) {
  HWY_DYNAMIC_DISPATCH(merge_attention)(parts, head_dim, out);
}

}  // namespace promptcached::kernels
#endif
