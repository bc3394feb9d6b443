#include "core/kernels/int8_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/int8_linear.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace promptcached::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Sums = hn::CappedTag<std::int32_t, kPanelOutputs>;
using Floats = hn::Rebind<float, Sums>;
using Pairs = hn::Repartition<std::int16_t, Sums>;
using Bytes = hn::Rebind<std::int8_t, Pairs>;
using ScaleBits = hn::Rebind<std::uint16_t, Sums>;

constexpr std::int64_t kLanes = hn::MaxLanes(Sums());
constexpr int kVectors = static_cast<int>(kPanelOutputs / kLanes);
// As many running sums as hide the latency of a multiply-add and still leave registers for the operands.
constexpr int kTileRows = 12 / kVectors;
// Rows that stay in the second-level cache while all panels of a task go over them.
constexpr std::int64_t kBlockRows = 96;

struct Product {
  std::int64_t groups;
  std::int64_t x_stride;
  const Int16Rows& x;
  const float* bias;  // of the panel's first output, or nullptr
  Store store;
  std::int64_t y_stride;
};

// sum + odd += the products of a and b, neighbours added to each other.
HWY_INLINE void add_products(Sums sums, hn::Vec<Pairs> a, hn::Vec<Pairs> b, hn::Vec<Sums>& sum, hn::Vec<Sums>& odd) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && HWY_COMPILER_GCC
  // gcc, left to itself, gathers all loads in front and then has no registers left for the running sums: half the
  // speed.
  const hn::Vec<Sums> products = hn::ReorderWidenMulAccumulate(sums, a, b, hn::Zero(sums), odd);
  asm("vpaddd %1, %0, %0" : "+v"(sum.raw) : "v"(products.raw));
#else
  sum = hn::ReorderWidenMulAccumulate(sums, a, b, sum, odd);
#endif
}

HWY_INLINE hn::Vec<Floats> scales_at(const std::byte* group, int vector) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(group + kGroupWeights) + vector * kLanes;
  const hn::Vec<hn::Rebind<std::uint32_t, Sums>> wide =
      hn::PromoteTo(hn::Rebind<std::uint32_t, Sums>(), hn::LoadU(ScaleBits(), bits));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(wide));
}

// Rows `row` to `row` + kRows - 1 times the outputs of one panel.
template <int kRows>
HWY_INLINE void multiply_tile(const Product& p, const std::byte* panel, std::int64_t row, std::int64_t outputs,
                              float* y) {
  const Sums sums;
  const Pairs pairs;
  const Floats floats;
  const std::int16_t* x = p.x.numbers + row * p.x_stride;
  const float* x_scales = p.x.scales + row * p.groups;
  hn::Vec<Floats> total[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] = hn::Zero(floats);
    }
  }
  for (std::int64_t g = 0; g < p.groups; ++g) {
    const std::byte* group = panel + g * kGroupBytes;
    const auto* weights = reinterpret_cast<const std::int8_t*>(group);
    hn::Vec<Sums> sum[kRows][kVectors];
    hn::Vec<Sums> odd[kRows][kVectors];  // used by processors that do not add neighbours at once
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = hn::Zero(sums);
        odd[r][v] = hn::Zero(sums);
      }
    }
    for (std::int64_t pair = 0; pair < kGroupInputs / 2; ++pair) {
      hn::Vec<Pairs> w[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        w[v] = hn::PromoteTo(pairs, hn::LoadU(Bytes(), weights + pair * 2 * kPanelOutputs + v * 2 * kLanes));
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        std::int32_t two;
        std::memcpy(&two, x + r * p.x_stride + g * kGroupInputs + pair * 2, sizeof two);
        const hn::Vec<Pairs> values = hn::BitCast(pairs, hn::Set(sums, two));
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          add_products(sums, w[v], values, sum[r][v], odd[r][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const hn::Vec<Floats> scale = scales_at(group, v);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const hn::Vec<Sums> whole = hn::RearrangeToOddPlusEven(sum[r][v], odd[r][v]);
        const hn::Vec<Floats> both = hn::Mul(scale, hn::Set(floats, x_scales[r * p.groups + g]));
        total[r][v] = hn::MulAdd(hn::ConvertTo(floats, whole), both, total[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* target = y + (row + r) * p.y_stride;
    HWY_ALIGN float last[kPanelOutputs];
    float* out = outputs == kPanelOutputs ? target : last;
    if (out == last) {
      std::copy_n(target, outputs, last);
    }
    for (int v = 0; v < kVectors; ++v) {
      hn::Vec<Floats> value = total[r][v];
      if (p.bias != nullptr) {
        value = hn::Add(value, hn::LoadU(floats, p.bias + v * kLanes));
      }
      if (p.store == Store::kAdd) {
        value = hn::Add(value, hn::LoadU(floats, out + v * kLanes));
      }
      hn::StoreU(value, floats, out + v * kLanes);
    }
    if (out == last) {
      std::copy_n(last, outputs, target);
    }
  }
}

template <int kRows>
void multiply_rows(const Product& p, const std::byte* panel, std::int64_t row, std::int64_t rows, std::int64_t outputs,
                   float* y) {
  if (rows == kRows) {
    multiply_tile<kRows>(p, panel, row, outputs, y);
  } else if constexpr (kRows > 1) {
    multiply_rows<kRows - 1>(p, panel, row, rows, outputs, y);
  }
}

}  // namespace

void multiply_panels(const Int8Matrix& matrix, const Int16Rows& x, std::int64_t first_panel, std::int64_t last_panel,
                     const float* bias, Store store, float* y, std::int64_t y_stride) {
  Product product{groups_of(matrix.in), padded_inputs(matrix.in), x, nullptr, store, y_stride};
  for (std::int64_t begin = 0; begin < x.rows; begin += kBlockRows) {
    const std::int64_t end = std::min(x.rows, begin + kBlockRows);
    for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
      const std::byte* data = matrix.data + panel * panel_bytes(matrix.in);
      const std::int64_t outputs = std::min(kPanelOutputs, matrix.out - panel * kPanelOutputs);
      HWY_ALIGN float last_bias[kPanelOutputs] = {};
      if (bias != nullptr) {
        product.bias = bias + panel * kPanelOutputs;
        if (outputs < kPanelOutputs) {
          std::copy_n(product.bias, outputs, last_bias);
          product.bias = last_bias;
        }
      }
      // Tiles of nearly equal heights: a lone last row would waste most of its tile.
      const std::int64_t tiles = (end - begin + kTileRows - 1) / kTileRows;
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t row = begin + (end - begin) * tile / tiles;
        const std::int64_t next = begin + (end - begin) * (tile + 1) / tiles;
        multiply_rows<kTileRows>(product, data, row, next - row, outputs, y + panel * kPanelOutputs);
      }
    }
  }
}

void quantize_one_row(const float* x, std::int64_t in, std::int16_t* numbers, float* scales) {
  const hn::CappedTag<float, 16> floats;
  const hn::Rebind<std::int32_t, decltype(floats)> wide;
  const hn::Rebind<std::int16_t, decltype(floats)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(floats));
  constexpr float kLargest = 32767.0F;
  for (std::int64_t first = 0; first < in; first += kGroupInputs) {
    HWY_ALIGN float last[kGroupInputs] = {};
    const float* group = x + first;
    if (in - first < kGroupInputs) {
      std::copy_n(group, in - first, last);
      group = last;
    }
    auto highest = hn::Zero(floats);
    for (std::int64_t i = 0; i < kGroupInputs; i += lanes) {
      highest = hn::Max(highest, hn::Abs(hn::LoadU(floats, group + i)));
    }
    const float most = hn::GetLane(hn::MaxOfLanes(floats, highest));
    scales[first / kGroupInputs] = most / kLargest;
    const auto factor = hn::Set(floats, most > 0 ? kLargest / most : 0.0F);
    for (std::int64_t i = 0; i < kGroupInputs; i += lanes) {
      const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(floats, group + i), factor));
      hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(wide, rounded)), narrow, numbers + first + i);
    }
  }
}

// One panel. Scales are rounded up to bf16 before the weights are divided by them, so rounding costs no accuracy but
// that of a step wider by less than a hundredth.
void quantize_panel(const float* weights, std::int64_t stride, std::int64_t outputs, std::int64_t in,
                    std::byte* panel) {
  constexpr float kLargest = 127.0F;
  for (std::int64_t first = 0; first < in; first += kGroupInputs) {
    std::byte* group = panel + first / kGroupInputs * kGroupBytes;
    std::memset(group, 0, kGroupBytes);
    const std::int64_t count = std::min(kGroupInputs, in - first);
    for (std::int64_t o = 0; o < outputs; ++o) {
      const float* row = weights + o * stride + first;
      float most = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        most = std::max(most, std::abs(row[i]));
      }
      std::uint32_t bits;
      const float exact = most / kLargest;
      std::memcpy(&bits, &exact, sizeof bits);
      bits = (bits + 0xFFFFU) & 0xFFFF0000U;
      float scale;
      std::memcpy(&scale, &bits, sizeof scale);
      const auto half = static_cast<std::uint16_t>(bits >> 16U);
      std::memcpy(group + kGroupWeights + o * 2, &half, sizeof half);
      for (std::int64_t i = 0; i < count; ++i) {
        group[(i / 2) * 2 * kPanelOutputs + o * 2 + i % 2] =
            static_cast<std::byte>(static_cast<std::int8_t>(scale > 0 ? std::nearbyint(row[i] / scale) : 0.0F));
      }
    }
  }
}

}  // namespace promptcached::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace promptcached::kernels {
namespace {

HWY_EXPORT(multiply_panels);
HWY_EXPORT(quantize_one_row);
HWY_EXPORT(quantize_panel);

}  // namespace

std::size_t int8_bytes(std::int64_t out, std::int64_t in) {
  return static_cast<std::size_t>(panels_of(out) * panel_bytes(in));
}

void quantize_panels(const float* weights, std::int64_t stride, std::int64_t out, std::int64_t in,
                     std::int64_t first_panel, std::int64_t last_panel, std::byte* data) {
  for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
    HWY_DYNAMIC_DISPATCH(quantize_panel)
    (weights + (panel - first_panel) * kPanelOutputs * stride, stride,
     std::min(kPanelOutputs, out - panel * kPanelOutputs), in, data + panel * panel_bytes(in));
  }
}

void dequantize_row(const Int8Matrix& matrix, std::int64_t row, float* numbers) {
  const std::int64_t output = row % kPanelOutputs;
  const std::byte* panel = matrix.data + row / kPanelOutputs * panel_bytes(matrix.in);
  for (std::int64_t i = 0; i < matrix.in; ++i) {
    const std::byte* group = panel + i / kGroupInputs * kGroupBytes;
    const std::int64_t within = i % kGroupInputs;
    std::uint16_t half;
    std::memcpy(&half, group + kGroupWeights + output * 2, sizeof half);
    const std::uint32_t bits = std::uint32_t{half} << 16U;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    const auto weight = static_cast<std::int8_t>(group[(within / 2) * 2 * kPanelOutputs + output * 2 + within % 2]);
    numbers[i] = static_cast<float>(weight) * scale;
  }
}

void quantize_row(const float* x, std::int64_t in, std::int16_t* numbers, float* scales) {
  HWY_DYNAMIC_DISPATCH(quantize_one_row)(x, in, numbers, scales);
}

void multiply(const Int8Matrix& matrix, const Int16Rows& x, std::int64_t first_panel, std::int64_t last_panel,
              const float* bias, Store store, float* y, std::int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_panels)(matrix, x, first_panel, last_panel, bias, store, y, y_stride);
}

}  // namespace promptcached::kernels
#endif
