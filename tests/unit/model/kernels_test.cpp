// Loops written for the CPU against the same in plain ATen operations, and rope's angles against its definition.
#include <ATen/Parallel.h>
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

// What rows see, made of random numbers.
struct Read {
  std::int64_t tokens = 0;
  std::vector<RowRange> rows;
};

// A batch over one layer of random KV, and what each backend makes of it.
class Attended final {
 public:
  Attended(const HeadShape& shape, at::ScalarType kv, const std::vector<RowRange>& groups,
           const std::vector<Read>& reads, ScoreRule rule = {}, double size = 1)
      : setup_{shape, {at::kCPU, at::kFloat, at::kFloat, kv}, {std::move(rule)}} {
    std::int64_t longest = 0;
    for (const Read& read : reads) {
      longest += read.tokens + 2;
    }
    for (const RowRange& group : groups) {
      batch_.causal_groups.push_back(group);
      for (std::int32_t row = group.begin; row < group.end; ++row) {
        batch_.tokens.push_back(0);
        batch_.positions.push_back(static_cast<std::int32_t>(longest) + row - group.begin);
      }
    }
    std::int32_t position = 0;
    for (const Read& read : reads) {
      // A read is a stretch of a longer array, with a gap in its positions.
      memory_.push_back((at::randn({2, shape.kv_heads, read.tokens + 9, shape.head_dim}) * size).to(kv));
      const KvArray array{static_cast<std::byte*>(memory_.back().mutable_data_ptr()),
                          static_cast<std::int32_t>(read.tokens) + 9};
      const auto count = static_cast<std::int32_t>(read.tokens);
      std::vector<PositionRun> runs = {{0, position}};
      if (count > 1) {
        runs.push_back({count / 2, position + count / 2 + 1});
      }
      batch_.reads.push_back({array, 4, count, read.rows, runs});
      position += count + 2;
    }
    const std::int64_t rows = batch_.rows();
    q_ = at::randn({shape.kv_heads, rows, shape.group, shape.head_dim}) * size;
    kv_ = (at::randn({2, shape.kv_heads, rows, shape.head_dim}) * size).to(kv);
  }

  at::Tensor by(AttentionBackend& backend) const {
    backend.begin(setup_, batch_);
    return backend.attend(0, q_, kv_);
  }
  at::Tensor fast() const { return by(*make_cpu_attention()); }
  at::Tensor generic() const { return by(*make_generic_attention()); }

 private:
  AttentionSetup setup_;
  ForwardBatch batch_;
  std::vector<at::Tensor> memory_;
  at::Tensor q_;
  at::Tensor kv_;
};

const std::vector<HeadShape> kShapes = {{3, 3, 64}, {1, 4, 8}, {4, 1, 20}, {2, 5, 128}};

}  // namespace

TEST_CASE("CPU attention reads as the generic one does", "[model][kernels]") {
  const std::vector<std::vector<RowRange>> row_sets = {
      {{0, 1}}, {{6, 7}}, {{2, 5}}, {{0, 7}}, {{1, 2}, {4, 5}, {6, 7}}};
  for (const HeadShape& shape : kShapes) {
    for (const std::int64_t tokens : {1, 2, 5, 63, 64, 65, 255, 300, 1031}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
        for (const auto& rows : row_sets) {
          INFO(shape.kv_heads << " x " << shape.group << " heads of " << shape.head_dim << ", " << tokens << " tokens, "
                              << c10::toString(dtype));
          const Attended attended(shape, dtype, {{0, 1}, {1, 2}, {2, 5}, {5, 6}, {6, 7}}, {{tokens, rows}});
          CHECK(largest_difference(attended.fast(), attended.generic()) < 2e-5);
        }
      }
    }
  }
}

TEST_CASE("CPU attention computes causal groups as the generic one does", "[model][kernels]") {
  for (const HeadShape& shape : kShapes) {
    for (const std::int32_t rows : {1, 2, 7, 24, 90, 333}) {
      INFO(shape.kv_heads << " x " << shape.group << " heads of " << shape.head_dim << ", " << rows << " rows");
      const Attended attended(shape, at::kFloat, {{0, 3}, {3, 3 + rows}, {3 + rows, 4 + rows}}, {});
      CHECK(largest_difference(attended.fast(), attended.generic()) < 2e-5);
    }
  }
}

TEST_CASE("CPU attention reads for long groups as the generic one does", "[model][kernels]") {
  // Some rows of a long group see a read, as where it holds later positions; short groups share it.
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf}) {
    const Attended attended({3, 3, 64}, dtype, {{0, 1}, {1, 301}, {301, 303}, {303, 320}, {320, 400}},
                            {{777, {{0, 1}, {6, 301}, {301, 302}, {310, 330}}},
                             {3, {{0, 320}}},
                             {1200, {{0, 1}, {301, 303}}},
                             {600, {{320, 400}}},
                             {600, {{320, 400}}},
                             {64, {{200, 201}, {302, 303}}}});
    CHECK(largest_difference(attended.fast(), attended.generic()) < 2e-5);
  }
}

TEST_CASE("CPU attention adds a batch's reads together", "[model][kernels]") {
  // Few and many queries, rows in common, long and short runs of keys.
  std::vector<RowRange> groups;
  std::vector<RowRange> most;
  for (std::int32_t row = 0; row < 40; ++row) {
    groups.push_back({row, row + 1});
    if (row % 4 != 1) {
      most.push_back({row, row + 1});
    }
  }
  const Attended attended(
      {3, 3, 64}, at::kFloat, groups,
      {{37, {{0, 1}}}, {648, {{0, 2}}}, {1259, {{3, 4}, {39, 40}}}, {1870, {{0, 1}}}, {2481, most}});
  CHECK(largest_difference(attended.fast(), attended.generic()) < 2e-5);
}

TEST_CASE("CPU attention follows caps, slopes and windows as the generic one does", "[model][kernels]") {
  const HeadShape shape{2, 3, 16};
  const at::Tensor slopes = at::randn({2, 3}).abs() * 0.1;
  const std::vector<RowRange> groups = {{0, 1}, {1, 41}, {41, 44}, {44, 300}};
  const std::vector<Read> reads = {{100, {{0, 1}, {1, 41}, {44, 300}}}, {1, {{0, 300}}}, {150, {{20, 41}, {42, 44}}}};
  for (const ScoreRule& rule : {ScoreRule{2.5, 0, {}}, ScoreRule{0, 60, {}}, ScoreRule{0, 1, {}},
                                ScoreRule{0, 0, slopes}, ScoreRule{30, 170, slopes}}) {
    INFO("cap " << rule.softcap << ", window " << rule.window << ", slopes " << rule.slopes.defined());
    const Attended attended(shape, at::kHalf, groups, reads, rule);
    CHECK(largest_difference(attended.fast(), attended.generic()) < 2e-5);
  }
}

TEST_CASE("CPU attention's results do not depend on threads nor on other sequences", "[model][kernels]") {
  const HeadShape shape{3, 3, 64};
  const auto backend = make_cpu_attention();
  const Attended both(shape, at::kHalf, {{0, 1}, {1, 2}, {2, 90}},
                      {{2000, {{0, 1}}}, {700, {{1, 2}}}, {300, {{2, 90}}}});
  const at::Tensor expected = both.by(*backend);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    CHECK(largest_difference(both.by(*backend), expected) == 0);
  }
  at::set_num_threads(threads);
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

TEST_CASE("Far scores neither overflow nor vanish", "[model][kernels]") {
  const Attended attended({2, 2, 16}, at::kFloat, {{0, 1}, {1, 2}, {2, 3}, {3, 30}},
                          {{200, {{0, 30}}}, {200, {{1, 2}}}}, {}, 20);
  const at::Tensor out = attended.fast();
  CHECK(out.isfinite().all().item<bool>());
  CHECK(largest_difference(out, attended.generic()) < 5e-2);
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
