#include "core/kernels/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/vocabulary.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {

// Numbers summed up in fp32 before the sum goes on in fp64.
constexpr std::size_t kStretch = 4096;

float largest(const float* x, std::size_t count) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto most = lowest;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(d, x + i);
    most = hn::IfThenElse(hn::Gt(value, most), value, most);  // false for NaN
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) {
    result = x[i] > result ? x[i] : result;
  }
  return result;
}

double sum_of_exp(const float* x, std::size_t count, float highest, float factor) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto subtract = hn::Set(d, highest);
  const auto scale = hn::Set(d, factor * std::numbers::log2e_v<float>);
  const auto least = hn::Set(d, -126.0F);
  double total = 0;
  std::size_t i = 0;
  while (i + lanes <= count) {
    const std::size_t end = std::min(count, i + kStretch);
    auto sum = hn::Zero(d);
    for (; i + lanes <= end; i += lanes) {
      const auto value = hn::Mul(hn::Sub(hn::LoadU(d, x + i), subtract), scale);
      const auto e = hn::IfThenElseZero(hn::Gt(value, least), exp2_of(d, value));
      sum = hn::Add(sum, hn::IfThenElse(hn::Eq(value, value), e, value));  // NaN stays NaN
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  for (; i < count; ++i) {
    const float value = (x[i] - highest) * factor;
    total += static_cast<double>(std::exp(value));
  }
  return total;
}

}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace promptcached::kernels {
namespace {
HWY_EXPORT(largest);
HWY_EXPORT(sum_of_exp);
}  // namespace

Highest highest(std::span<const float> logits) {
  const float value = HWY_DYNAMIC_DISPATCH(largest)(logits.data(), logits.size());
  const auto at = std::find(logits.begin(), logits.end(), value);
  return {at == logits.end() ? 0 : at - logits.begin(), value};
}

namespace {

constexpr std::size_t kWord = 32;
constexpr std::uint32_t kAll = ~std::uint32_t{0};
constexpr float kNever = -std::numeric_limits<float>::infinity();

// step(begin, end, bits): stretches of logits between whole words; of as many words as possible where all bits are set
// (kAll) or none is (0), of one word else. The masks of grammars are mostly long runs of either.
template <typename Step>
void for_each_run(std::size_t count, std::span<const std::uint32_t> bits, const Step& step) {
  const std::size_t words = (count + kWord - 1) / kWord;
  for (std::size_t word = 0; word < words;) {
    const std::uint32_t value = bits[word];
    std::size_t end = word + 1;
    if (value == 0 || value == kAll) {
      while (end < words && bits[end] == value) {
        ++end;
      }
    }
    step(word * kWord, std::min(count, end * kWord), value);
    word = end;
  }
}

}  // namespace

Highest highest_of(std::span<const float> logits, std::span<const std::uint32_t> bits) {
  Highest best{-1, kNever};
  for_each_run(logits.size(), bits, [&](std::size_t begin, std::size_t end, std::uint32_t value) {
    if (value == kAll) {
      const std::span<const float> run = logits.subspan(begin, end - begin);
      if (const float most = HWY_DYNAMIC_DISPATCH(largest)(run.data(), run.size()); most > best.value) {
        best = {static_cast<std::int64_t>(begin) + (std::find(run.begin(), run.end(), most) - run.begin()), most};
      }
      return;
    }
    for (; value != 0; value &= value - 1) {
      const std::size_t i = begin + static_cast<std::size_t>(std::countr_zero(value));
      if (i < end && logits[i] > best.value) {
        best = {static_cast<std::int64_t>(i), logits[i]};
      }
    }
  });
  return best;
}

void keep_only(std::span<float> logits, std::span<const std::uint32_t> bits) {
  for_each_run(logits.size(), bits, [&](std::size_t begin, std::size_t end, std::uint32_t value) {
    if (value == kAll) {
      return;
    }
    for (std::size_t i = begin; i < end; ++i) {
      logits[i] = ((value >> (i - begin) % kWord) & 1) != 0 ? logits[i] : kNever;
    }
  });
}

double exp_sum(std::span<const float> logits, float highest, float factor) {
  return HWY_DYNAMIC_DISPATCH(sum_of_exp)(logits.data(), logits.size(), highest, factor);
}

}  // namespace promptcached::kernels
#endif
