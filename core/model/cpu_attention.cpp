#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/model/aten.h"
#include "core/model/attention_backend.h"
#include "core/model/merge_row.h"
#include "core/model/stream_reads.h"

namespace promptcached::model {
namespace {

// Numbers below which a second thread costs more than it saves.
constexpr std::int64_t kNumbersPerTask = 16 * 1024;
// Queries of a KV head above which there is work enough for all threads without dividing the keys.
constexpr std::int64_t kManyQueries = 512;
// Queries of a KV head up to which streaming the keys beats torch's blocked attention.
constexpr std::int64_t kFewQueries = 256;
// Keys below which dividing them costs more than it saves.
constexpr std::int64_t kFewKeys = 128;

// Partial results over `parts` runs of keys, still to be merged.
struct Parts {
  at::Tensor out;  // [kv_heads, parts, rows, group, head_dim] fp32; any strides, the last one 1
  at::Tensor lse;  // [kv_heads, parts, rows, group] fp32; any strides
};

double scale_of(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(-1))); }

// Into how many runs the keys are divided so that heads times runs spread evenly over the threads.
std::int64_t key_runs(std::int64_t kv_heads, std::int64_t queries, std::int64_t tokens) {
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t runs = threads / std::gcd(threads, kv_heads);
  return queries >= kManyQueries || tokens / runs < kFewKeys ? 1 : runs;
}

// All queries against `runs` equal runs of keys at once. The group's queries are further rows to the operation, so a
// key is read once for all of them; the runs are its "heads". Views only, no copies.
Parts attend_runs(const at::Tensor& q,  // [kv_heads, rows, group, head_dim], rows and group contiguous
                  const at::Tensor& k,  // [kv_heads, tokens, head_dim]; tokens is a multiple of runs
                  const at::Tensor& v, std::int64_t runs) {
  const std::int64_t kv_heads = q.size(0);
  const std::int64_t rows = q.size(1);
  const std::int64_t group = q.size(2);
  const std::int64_t head_dim = q.size(3);
  const std::int64_t run = k.size(1) / runs;
  const at::Tensor queries = q.as_strided({kv_heads, runs, rows * group, head_dim}, {q.stride(0), 0, head_dim, 1});
  const auto divide = [&](const at::Tensor& x) {
    return x.as_strided({kv_heads, runs, run, head_dim}, {x.stride(0), run * head_dim, head_dim, 1});
  };
  const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      queries, divide(k), divide(v), /*dropout_p=*/0.0, /*is_causal=*/false, /*attn_mask=*/{}, scale_of(q));
  return {out.unflatten(2, {rows, group}), lse.unflatten(2, {rows, group})};
}

// Merges row i of `parts` into row rows[i] of `sum`.
void merge(const Parts& parts, std::span<const std::int32_t> rows, AttentionSum* sum) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t part_count = parts.out.size(1);
  const std::int64_t group = parts.out.size(3);
  const std::int64_t head_dim = parts.out.size(4);
  const std::int64_t all_rows = sum->out.size(1);
  const at::IntArrayRef out_strides = parts.out.strides();
  const at::IntArrayRef lse_strides = parts.lse.strides();
  const float* out = parts.out.const_data_ptr<float>();
  const float* lse = parts.lse.const_data_ptr<float>();
  float* sum_out = sum->out.mutable_data_ptr<float>();
  float* sum_lse = sum->lse.mutable_data_ptr<float>();
  const auto merge_one = [&](std::int64_t head, std::int64_t row, std::int64_t member) {
    const std::int64_t query = (head * all_rows + rows[row]) * group + member;
    for (std::int64_t part = 0; part < part_count; ++part) {
      merge_row(out + head * out_strides[0] + part * out_strides[1] + row * out_strides[2] + member * out_strides[3],
                lse[head * lse_strides[0] + part * lse_strides[1] + row * lse_strides[2] + member * lse_strides[3]],
                head_dim, sum_out + query * head_dim, sum_lse + query);
    }
  };
  const std::int64_t grain = std::max<std::int64_t>(1, kNumbersPerTask / (part_count * group * head_dim));
  at::parallel_for(0, parts.out.size(0) * count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t member = 0; member < group; ++member) {
        merge_one(i / count, i % count, member);
      }
    }
  });
}

// Many queries over one read: torch's blocked attention.
void add_many(const at::Tensor& q, const StoredKeys& read, AttentionSum* sum) {
  const std::vector<std::int32_t>& rows = read.rows->rows;
  const auto count = static_cast<std::int64_t>(rows.size());
  const at::Tensor queries =
      read.rows->index.defined() ? q.index_select(1, read.rows->index) : q.narrow(1, rows.front(), count);
  const at::Tensor k = read.k.to(at::kFloat);
  const at::Tensor v = read.v.to(at::kFloat);
  const std::int64_t runs = key_runs(q.size(0), count * q.size(2), k.size(1));
  const std::int64_t rest = k.size(1) % runs;
  const std::int64_t even = k.size(1) - rest;
  merge(attend_runs(queries, k.narrow(1, 0, even), v.narrow(1, 0, even), runs), rows, sum);
  if (rest > 0) {
    merge(attend_runs(queries, k.narrow(1, even, rest), v.narrow(1, even, rest), 1), rows, sum);
  }
}

class CpuAttention final : public AttentionBackend {
 public:
  void begin_self(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum) const override {
    if (!rule.is_plain()) {
      generic_->begin_self(states, rows, rule, sum);
      return;
    }
    const std::int64_t all_rows = states.q.size(1);
    const std::int64_t group = states.q.size(2);
    const std::int64_t head_dim = states.q.size(3);
    const auto scale = static_cast<float>(scale_of(states.q));
    const float* q = states.q.const_data_ptr<float>();
    float* out = sum->out.mutable_data_ptr<float>();
    float* lse = sum->lse.mutable_data_ptr<float>();
    for (std::int64_t head = 0; head < states.q.size(0); ++head) {
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        const float* key = states.k.const_data_ptr<float>() + head * states.k.stride(0) + row * head_dim;
        const float* value = states.v.const_data_ptr<float>() + head * states.v.stride(0) + row * head_dim;
        for (std::int64_t member = 0; member < group; ++member) {
          const std::int64_t query = (head * all_rows + row) * group + member;
          const float* x = q + query * head_dim;
          lse[query] = scale * std::inner_product(x, x + head_dim, key, 0.0F);
          std::memcpy(out + query * head_dim, value, static_cast<std::size_t>(head_dim) * sizeof(float));
        }
      }
    }
  }

  void begin_causal(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum) const override {
    if (!rule.is_plain()) {
      generic_->begin_causal(states, rows, rule, sum);
      return;
    }
    // KV heads as the operation's batch and the group as its heads, all of which read the same keys.
    const auto narrow = [&](const at::Tensor& x) { return x.narrow(1, rows.begin, rows.size()); };
    const auto spread = [&](const at::Tensor& x) {
      return narrow(x).unsqueeze(1).expand({x.size(0), states.q.size(2), rows.size(), x.size(2)});
    };
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        narrow(states.q).transpose(1, 2), spread(states.k), spread(states.v), /*dropout_p=*/0.0, /*is_causal=*/true,
        /*attn_mask=*/{}, scale_of(states.q));
    if (rows.size() == states.q.size(1)) {
      *sum = {out.transpose(1, 2).contiguous(), lse.transpose(1, 2).contiguous()};
    } else {
      narrow(sum->out).copy_(out.transpose(1, 2));
      narrow(sum->lse).copy_(lse.transpose(1, 2));
    }
  }

  void add(const NewStates& states, std::span<const StoredKeys> reads, const ScoreRule& rule,
           AttentionSum* sum) const override {
    if (!rule.is_plain()) {
      generic_->add(states, reads, rule, sum);
      return;
    }
    const at::Tensor& q = states.q;
    std::vector<StoredKeys> few;
    for (const StoredKeys& read : reads) {
      const auto queries = static_cast<std::int64_t>(read.rows->rows.size()) * q.size(2);
      if (queries <= kFewQueries && can_stream(q.size(3))) {
        few.push_back(read);
      } else {
        add_many(q, read, sum);
      }
    }
    if (!few.empty()) {
      stream_reads(q, few, sum);
    }
  }

 private:
  std::unique_ptr<AttentionBackend> generic_ = make_generic_attention();
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cpu_attention() { return std::make_unique<CpuAttention>(); }

}  // namespace promptcached::model
