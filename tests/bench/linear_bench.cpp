// The matrix products beside the limits of the machine: operations (a multiplication and an addition are two) and bytes
// of weights a second, on one thread.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/kernels/int8_linear.h"

namespace promptcached::kernels {
namespace {

struct Bytes {
  explicit Bytes(std::size_t size) : data(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64))) {}
  ~Bytes() { std::free(data); }
  std::byte* data;
};

void int8_linear(benchmark::State& state) {
  const std::int64_t out = state.range(0);
  const std::int64_t in = state.range(1);
  const std::int64_t rows = state.range(2);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> weights(static_cast<std::size_t>(out * in));
  for (float& weight : weights) {
    weight = normal(random);
  }
  Bytes bytes(int8_bytes(out, in));
  quantize_panels(weights.data(), in, out, in, 0, panels_of(out), bytes.data);
  std::vector<std::int16_t> numbers(static_cast<std::size_t>(rows * padded_inputs(in)));
  std::vector<float> scales(static_cast<std::size_t>(rows * groups_of(in)));
  std::vector<float> y(static_cast<std::size_t>(rows * out));
  for (std::int64_t row = 0; row < rows; ++row) {
    quantize_row(weights.data() + row % out * in, in, numbers.data() + row * padded_inputs(in),
                 scales.data() + row * groups_of(in));
  }
  const Int8Matrix matrix{out, in, bytes.data};
  const Int16Rows x{rows, numbers.data(), scales.data()};
  for (auto _ : state) {
    multiply(matrix, x, 0, panels_of(out), nullptr, Store::kSet, y.data(), out);
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GOP/s"] =
      benchmark::Counter(runs * 2.0 * static_cast<double>(out * in * rows), benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(runs * static_cast<double>(int8_bytes(out, in)), benchmark::Counter::kIsRate);
}
BENCHMARK(int8_linear)
    ->ArgNames({"out", "in", "rows"})
    ->ArgsProduct({{960, 49152}, {576}, {1, 8, 24, 96, 512}})
    ->ArgsProduct({{576}, {1536}, {1, 8, 24, 96, 512}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace promptcached::kernels
