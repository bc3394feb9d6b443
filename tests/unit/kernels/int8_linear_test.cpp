#include "core/kernels/int8_linear.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/kernels/simd_target.h"
#include "tests/catch.h"

namespace promptcached::kernels {
namespace {

struct Free {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Bytes = std::unique_ptr<std::byte, Free>;

std::vector<float> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  std::generate(numbers.begin(), numbers.end(), [&] { return normal(random); });
  return numbers;
}

struct Packed {
  Int8Matrix matrix;
  Bytes bytes;
};

Packed pack(const std::vector<float>& weights, std::int64_t out, std::int64_t in) {
  const std::size_t size = (int8_bytes(out, in) + 63) / 64 * 64;
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(64, size)));
  std::fill_n(bytes.get(), size, std::byte{0x7F});  // nothing may depend on what was there
  quantize_panels(weights.data(), in, out, in, 0, panels_of(out), bytes.get());
  return {{out, in, bytes.get()}, std::move(bytes)};
}

struct Rounded {
  std::vector<std::int16_t> numbers;
  std::vector<float> scales;
  std::int64_t count;
  Int16Rows rows() const { return {count, numbers.data(), scales.data()}; }
};

Rounded round_rows(const std::vector<float>& x, std::int64_t rows, std::int64_t in) {
  Rounded rounded{std::vector<std::int16_t>(static_cast<std::size_t>(rows * padded_inputs(in)), 99),
                  std::vector<float>(static_cast<std::size_t>(rows * groups_of(in))), rows};
  for (std::int64_t row = 0; row < rows; ++row) {
    quantize_row(x.data() + row * in, in, rounded.numbers.data() + row * padded_inputs(in),
                 rounded.scales.data() + row * groups_of(in));
  }
  return rounded;
}

std::vector<float> product(const Int8Matrix& matrix, const Rounded& x, const float* bias = nullptr) {
  std::vector<float> y(static_cast<std::size_t>(x.count * matrix.out), NAN);
  multiply(matrix, x.rows(), 0, panels_of(matrix.out), bias, Store::kSet, y.data(), matrix.out);
  return y;
}

}  // namespace

TEST_CASE("Weights in 8 bits are within half a step of the given ones", "[kernels][int8]") {
  const std::int64_t out = 37;
  const std::int64_t in = 75;
  std::vector<float> weights = random_numbers(static_cast<std::size_t>(out * in), 1);
  std::fill_n(weights.begin(), 32, 0.0F);  // a group without a scale
  weights[40] = 1e-30F;
  const Packed packed = pack(weights, out, in);
  for (std::int64_t row = 0; row < out; ++row) {
    std::vector<float> numbers(static_cast<std::size_t>(in));
    dequantize_row(packed.matrix, row, numbers.data());
    for (std::int64_t first = 0; first < in; first += kGroupInputs) {
      const std::int64_t end = std::min(in, first + kGroupInputs);
      float most = 0;
      for (std::int64_t i = first; i < end; ++i) {
        most = std::max(most, std::abs(weights[static_cast<std::size_t>(row * in + i)]));
      }
      for (std::int64_t i = first; i < end; ++i) {
        const float given = weights[static_cast<std::size_t>(row * in + i)];
        CHECK(std::abs(numbers[static_cast<std::size_t>(i)] - given) <= most / 127 * 0.5F * 1.01F);
      }
    }
  }
}

TEST_CASE("Products with 8-bit weights are those with the rounded numbers", "[kernels][int8]") {
  for (const std::string& target : simd_targets()) {
    REQUIRE(limit_simd_target(target));
    for (const auto& [out, in, rows] : {std::tuple(16, 32, 1), std::tuple(960, 576, 7), std::tuple(3, 13, 5),
                                        std::tuple(50, 100, 24), std::tuple(17, 1536, 130), std::tuple(33, 64, 13)}) {
      INFO(target << ": " << rows << " rows, " << in << " to " << out);
      const std::vector<float> weights = random_numbers(static_cast<std::size_t>(out) * in, 2);
      const std::vector<float> x = random_numbers(static_cast<std::size_t>(rows) * in, 3);
      const std::vector<float> bias = random_numbers(static_cast<std::size_t>(out), 4);
      const Packed packed = pack(weights, out, in);
      const Rounded rounded = round_rows(x, rows, in);
      const std::vector<float> y = product(packed.matrix, rounded, bias.data());
      std::vector<float> numbers(static_cast<std::size_t>(in));
      for (std::int64_t o = 0; o < out; ++o) {
        dequantize_row(packed.matrix, o, numbers.data());
        for (std::int64_t row = 0; row < rows; ++row) {
          double exact = bias[static_cast<std::size_t>(o)];
          double allowed = 1e-4;  // fp32 sums, and half a step of each input's rounding
          for (std::int64_t i = 0; i < in; ++i) {
            exact +=
                static_cast<double>(x[static_cast<std::size_t>(row * in + i)]) * numbers[static_cast<std::size_t>(i)];
            const float step = rounded.scales[static_cast<std::size_t>(row * groups_of(in) + i / kGroupInputs)];
            allowed += std::abs(numbers[static_cast<std::size_t>(i)]) * step * 0.5;
          }
          REQUIRE(std::abs(y[static_cast<std::size_t>(row * out + o)] - exact) <= allowed);
        }
      }
      // Added to what is there, at another stride.
      std::vector<float> sum(static_cast<std::size_t>(rows * (out + 5)), 1.0F);
      multiply(packed.matrix, rounded.rows(), 0, panels_of(out), bias.data(), Store::kAdd, sum.data(), out + 5);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t o = 0; o < out + 5; ++o) {
          const float expected = o < out ? 1.0F + y[static_cast<std::size_t>(row * out + o)] : 1.0F;
          REQUIRE(sum[static_cast<std::size_t>(row * (out + 5) + o)] == expected);
        }
      }
    }
  }
}

TEST_CASE("A row's product has the same bits alone and among others, whole and in parts", "[kernels][int8]") {
  const std::int64_t out = 100;
  const std::int64_t in = 96;
  const Packed packed = pack(random_numbers(static_cast<std::size_t>(out * in), 5), out, in);
  const std::vector<float> x = random_numbers(static_cast<std::size_t>(300 * in), 6);
  const std::vector<float> together = product(packed.matrix, round_rows(x, 300, in));
  for (const std::int64_t row : {0, 1, 95, 96, 97, 250, 299}) {
    const std::vector<float> one(x.begin() + row * in, x.begin() + (row + 1) * in);
    const std::vector<float> alone = product(packed.matrix, round_rows(one, 1, in));
    CHECK(std::equal(alone.begin(), alone.end(), together.begin() + row * out));
  }
  const Rounded rounded = round_rows(x, 300, in);
  std::vector<float> parts(together.size());
  for (std::int64_t panel = 0; panel < panels_of(out); ++panel) {
    multiply(packed.matrix, rounded.rows(), panel, panel + 1, nullptr, Store::kSet, parts.data(), out);
  }
  CHECK(parts == together);
}

TEST_CASE("The largest inputs and weights do not overflow", "[kernels][int8]") {
  const std::int64_t in = 4096;
  const Packed packed = pack(std::vector<float>(static_cast<std::size_t>(16 * in), 2.0F), 16, in);
  const Rounded rounded = round_rows(std::vector<float>(static_cast<std::size_t>(in), -3.0F), 1, in);
  for (const float y : product(packed.matrix, rounded)) {
    CHECK(y == Approx(-6.0 * static_cast<double>(in)).epsilon(0.01));
  }
  const Rounded zero = round_rows(std::vector<float>(static_cast<std::size_t>(in), 0.0F), 1, in);
  CHECK(product(packed.matrix, zero) == std::vector<float>(16, 0.0F));
}

}  // namespace promptcached::kernels
