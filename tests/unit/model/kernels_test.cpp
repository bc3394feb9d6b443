// Loops written for the CPU against the same in plain ATen operations, and rope's angles against its definition.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <vector>

#include "core/model/attention_backend.h"
#include "core/model/elementwise.h"
#include "core/model/linear.h"
#include "core/model/rope.h"
#include "tests/catch.h"

namespace promptcached::model {
namespace {

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>();
}

AttentionSum random_sum(std::int64_t kv_heads, std::int64_t rows, std::int64_t group, std::int64_t head_dim) {
  return {at::randn({kv_heads, rows, group, head_dim}), at::randn({kv_heads, rows, group})};
}

// New states of which only the queries matter.
NewStates queries(at::Tensor q) { return {std::move(q), {}, {}, {}}; }

AttentionSum copy_of(const AttentionSum& sum) { return {sum.out.clone(), sum.lse.clone()}; }

RowList list_of(const std::vector<std::int32_t>& rows) {
  RowList list{rows, {}};
  if (rows.back() - rows.front() + 1 != static_cast<std::int32_t>(rows.size())) {
    list.index = at::tensor(rows, at::kLong);
  }
  return list;
}

void check_equal(const AttentionSum& a, const AttentionSum& b) {
  CHECK(largest_difference(a.out, b.out) < 2e-5);
  CHECK(largest_difference(a.lse, b.lse) < 2e-5);
}

}  // namespace

TEST_CASE("CPU attention adds reads as the generic one does", "[model][kernels]") {
  const auto fast = make_cpu_attention();
  const auto generic = make_generic_attention();
  const std::vector<std::vector<std::int32_t>> row_sets = {{0}, {6}, {2, 3, 4}, {0, 1, 2, 3, 4, 5, 6}, {1, 4, 6}};
  for (const auto& [kv_heads, group, head_dim] :
       {std::tuple(3, 3, 64), std::tuple(1, 4, 8), std::tuple(4, 1, 20), std::tuple(2, 5, 128)}) {
    for (const std::int64_t tokens : {1, 2, 5, 63, 64, 65, 255, 300, 1031}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
        INFO(kv_heads << " x " << group << " heads of " << head_dim << ", " << tokens << " tokens, "
                      << c10::toString(dtype));
        const NewStates states = queries(at::randn({kv_heads, 7, group, head_dim}));
        // A read is a stretch of a longer array.
        const at::Tensor kv = at::randn({2, kv_heads, tokens + 9, head_dim}).to(dtype).narrow(2, 4, tokens);
        for (const auto& rows : row_sets) {
          AttentionSum a = random_sum(kv_heads, 7, group, head_dim);
          AttentionSum b = copy_of(a);
          const RowList list = list_of(rows);
          const std::vector<StoredKeys> reads = {{kv.select(0, 0), kv.select(0, 1), &list}};
          fast->add(states, reads, {}, &a);
          generic->add(states, reads, {}, &b);
          check_equal(a, b);
        }
      }
    }
  }
}

TEST_CASE("CPU attention reads many rows as the generic one does", "[model][kernels]") {
  const auto fast = make_cpu_attention();
  const auto generic = make_generic_attention();
  const NewStates states = queries(at::randn({3, 300, 3, 64}));
  const at::Tensor kv = at::randn({2, 3, 777, 64});
  AttentionSum a = random_sum(3, 300, 3, 64);
  AttentionSum b = copy_of(a);
  std::vector<std::int32_t> rows(290);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<std::int32_t>(i) + 5;
  }
  const RowList list = list_of(rows);
  const std::vector<StoredKeys> reads = {{kv.select(0, 0), kv.select(0, 1), &list}};
  fast->add(states, reads, {}, &a);
  generic->add(states, reads, {}, &b);
  check_equal(a, b);
}

TEST_CASE("CPU attention adds a batch's reads together", "[model][kernels]") {
  const auto fast = make_cpu_attention();
  const auto generic = make_generic_attention();
  const NewStates states = queries(at::randn({3, 40, 3, 64}));
  // Few and many queries, rows in common, long and short runs of keys.
  std::vector<RowList> lists = {list_of({0}), list_of({0, 1}), list_of({3, 39}), list_of({0})};
  std::vector<std::int32_t> most;
  for (std::int32_t row = 0; row < 40; row += 1 + row % 3) {
    most.push_back(row);
  }
  lists.push_back(list_of(most));
  std::vector<StoredKeys> reads;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const at::Tensor kv = at::randn({2, 3, 37 + static_cast<std::int64_t>(i) * 611, 64});
    reads.push_back({kv.select(0, 0), kv.select(0, 1), &lists[i]});
  }
  AttentionSum a = random_sum(3, 40, 3, 64);
  AttentionSum b = copy_of(a);
  fast->add(states, reads, {}, &a);
  generic->add(states, reads, {}, &b);
  check_equal(a, b);
}

TEST_CASE("Products of few rows equal the general ones", "[model][kernels]") {
  for (const auto& [in, out] : {std::pair(576, 960), std::pair(20, 7), std::pair(13, 3), std::pair(1536, 577)}) {
    for (const bool has_bias : {false, true}) {
      const Linear linear = dense_linear(at::randn({out, in}), has_bias ? at::randn({out}) : at::Tensor());
      for (const std::int64_t rows : {1, 2, 3, 4, 5}) {
        INFO(rows << " rows, " << in << " to " << out);
        const at::Tensor wide = at::randn({rows, 2 * in});
        const at::Tensor x = wide.narrow(1, in, in);  // rows apart, as half of gate and up
        at::Tensor expected = at::matmul(x, linear.weight.t());
        if (has_bias) {
          expected = expected + linear.bias;
        }
        CHECK(largest_difference(apply(linear, x), expected) < 1e-3);
        const at::Tensor before = at::randn({rows, out});
        at::Tensor sum = before.clone();
        add_applied(linear, x, &sum);
        CHECK(largest_difference(sum, before + expected) < 1e-3);
      }
    }
  }
}

TEST_CASE("CPU attention begins sums as the generic one does", "[model][kernels]") {
  const auto fast = make_cpu_attention();
  const auto generic = make_generic_attention();
  for (const auto& [kv_heads, group, head_dim] : {std::tuple(3, 3, 64), std::tuple(1, 4, 8), std::tuple(4, 1, 20)}) {
    const at::Tensor kv = at::randn({2, kv_heads, 90, head_dim});
    const NewStates states{at::randn({kv_heads, 90, group, head_dim}), kv.select(0, 0), kv.select(0, 1), {}};
    for (const RowRange rows : {RowRange{0, 90}, RowRange{0, 1}, RowRange{13, 77}}) {
      INFO(kv_heads << " x " << group << " heads of " << head_dim << ", rows " << rows.begin << " to " << rows.end);
      AttentionSum a = random_sum(kv_heads, 90, group, head_dim);
      AttentionSum b = copy_of(a);
      fast->begin_causal(states, rows, {}, &a);
      generic->begin_causal(states, rows, {}, &b);
      check_equal(a, b);
      fast->begin_self(states, rows, {}, &a);
      generic->begin_self(states, rows, {}, &b);
      check_equal(a, b);
    }
  }
}

TEST_CASE("Far scores neither overflow nor vanish", "[model][kernels]") {
  const auto fast = make_cpu_attention();
  const auto generic = make_generic_attention();
  const NewStates states = queries(at::randn({2, 3, 2, 16}) * 20);
  const at::Tensor kv = at::randn({2, 2, 200, 16}) * 20;
  AttentionSum a = random_sum(2, 3, 2, 16);
  AttentionSum b = copy_of(a);
  for (const RowList& list : {list_of({0, 1, 2}), list_of({1})}) {
    const std::vector<StoredKeys> reads = {{kv.select(0, 0), kv.select(0, 1), &list}};
    fast->add(states, reads, {}, &a);
    generic->add(states, reads, {}, &b);
  }
  CHECK(a.out.isfinite().all().item<bool>());
  CHECK(largest_difference(a.out, b.out) < 5e-2);
  CHECK(largest_difference(a.lse / b.lse, b.lse / b.lse) < 1e-5);
}

TEST_CASE("CPU loops equal their generic versions", "[model][kernels]") {
  for (const std::int64_t rows : {1, 3, 200}) {
    for (const auto& [kv_heads, group, head_dim] : {std::tuple(3, 3, 64), std::tuple(1, 4, 8), std::tuple(4, 1, 20)}) {
      INFO(rows << " rows, " << kv_heads << " x " << group << " heads of " << head_dim);
      const std::int64_t hidden = 7 + head_dim;
      const at::Tensor x = at::randn({rows, hidden});
      const at::Tensor weight = at::randn({hidden});
      CHECK(largest_difference(rms_norm(x, weight, 1e-5), rms_norm_generic(x, weight, 1e-5)) < 1e-5);

      const at::Tensor positions = at::arange(rows, at::kFloat) * 13;
      const HeadShape shape{kv_heads, group, head_dim};
      for (const int rotated : {head_dim, head_dim / 4 * 2, 0}) {
        for (const bool has_norms : {false, true}) {
          INFO(rotated << " dimensions rotated, norms " << has_norms);
          const HeadSteps steps{.q_norm = has_norms ? at::randn({head_dim}) : at::Tensor(),
                                .k_norm = has_norms ? at::randn({head_dim}) : at::Tensor(),
                                .norm_eps = 1e-6,
                                .rotated_dims = rotated,
                                .query_factor = has_norms ? 1.7 : 1.0};
          const RopeAngles angles =
              rotated == 0 ? RopeAngles{} : Rope(RopeConfig{}, rotated, 0, at::kCPU).angles(positions);
          const at::Tensor qkv = at::randn({rows, (group + 2) * kv_heads * head_dim});
          const Heads generic = split_heads_generic(qkv.clone(), angles, shape, steps);
          const Heads fast = split_heads(qkv.clone(), angles, shape, steps);
          CHECK(largest_difference(fast.q, generic.q) < 1e-5);
          CHECK(largest_difference(fast.kv, generic.kv) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("Rope turns far positions as defined", "[model][kernels]") {
  RopeConfig config;
  config.theta = 100000.0;
  const std::vector<std::int32_t> positions = {0, 1, 8191};
  const RopeAngles angles = Rope(config, 64, 0, at::kCPU).angles(at::tensor(positions, at::kLong).to(at::kFloat));
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 32; ++i) {
      const double angle =
          positions[static_cast<std::size_t>(row)] * std::pow(100000.0, -2.0 * static_cast<double>(i) / 64);
      CHECK(angles.cos[row][i].item<double>() == Approx(std::cos(angle)).margin(1e-3));
      CHECK(angles.sin[row][i].item<double>() == Approx(std::sin(angle)).margin(1e-3));
    }
  }
}

}  // namespace promptcached::model
