// One thread's attention over keys of the default model's shape: arithmetic beside the peak of multiply-adds, bytes
// beside the memory's speed. `bench_kernels --benchmark_filter=attention`
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

#include "core/kernels/attention.h"

namespace promptcached::kernels {
namespace {

// rows, keys, segments, bytes of a number, size of a head
void attention(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const std::int64_t keys = state.range(1);
  const std::int64_t segments = state.range(2);
  const std::int64_t element = state.range(3);
  const std::int64_t head_dim = state.range(4);
  const std::int64_t group = 3;
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> q(static_cast<std::size_t>(rows * group * head_dim));
  for (float& x : q) {
    x = uniform(generator);
  }
  // More keys than the caches hold, visited in turn.
  const std::int64_t copies = std::max<std::int64_t>(1, (std::int64_t{64} << 20) / (2 * keys * head_dim * element));
  std::vector<std::uint16_t> kv(static_cast<std::size_t>(2 * copies * keys * head_dim * element / 2));
  for (std::uint16_t& x : kv) {
    x = static_cast<std::uint16_t>(0x3800 + generator() % 0x400);  // about a half as fp16; harmless as fp32
  }
  std::vector<float> out(q.size());
  std::vector<float> lse(static_cast<std::size_t>(rows * group));
  std::vector<std::int32_t> list(static_cast<std::size_t>(rows));
  std::iota(list.begin(), list.end(), 0);
  std::vector<KeyPiece> pieces(static_cast<std::size_t>(segments));
  std::int64_t copy = 0;
  for (auto _ : state) {
    const auto* base = reinterpret_cast<const std::byte*>(kv.data()) + copy * 2 * keys * head_dim * element;
    for (std::int64_t i = 0; i < segments; ++i) {
      const std::int64_t first = keys * i / segments;
      const std::int64_t end = keys * (i + 1) / segments;
      const std::byte* k = base + first * head_dim * element;
      pieces[static_cast<std::size_t>(i)] = {k, k + keys * head_dim * element, end - first};
    }
    compute_attention({pieces,
                       element == 4 ? KvFormat::kFp32 : KvFormat::kFp16,
                       head_dim,
                       group,
                       list,
                       q.data(),
                       nullptr,
                       {},
                       out.data(),
                       group * head_dim,
                       lse.data()});
    copy = (copy + 1) % copies;
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(runs * 4e-9 * static_cast<double>(rows * group * keys * head_dim),
                                                 benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(runs * 2e-9 * static_cast<double>(keys * head_dim * element), benchmark::Counter::kIsRate);
}

BENCHMARK(attention)
    ->ArgNames({"rows", "keys", "segments", "bytes", "head"})
    ->Args({1, 512, 1, 4, 64})
    ->Args({1, 512, 1, 2, 64})
    ->Args({1, 512, 16, 2, 64})
    ->Args({2, 512, 1, 2, 64})
    ->Args({3, 512, 1, 2, 64})
    ->Args({8, 1024, 1, 4, 64})
    ->Args({8, 1024, 1, 2, 64})
    ->Args({24, 1024, 1, 4, 64})
    ->Args({24, 1024, 1, 2, 64})
    ->Args({24, 1024, 10, 4, 64})
    ->Args({32, 4096, 1, 4, 64})
    ->Args({32, 4096, 1, 4, 128});

}  // namespace
}  // namespace promptcached::kernels
