// Attention over one run of keys at a time, summed up over many runs.
//
// For each query a partial result is the softmax-weighted sum of the values it has seen so far, normalised among those
// values alone, and the log of the sum of exponentials that normalised it. Two partial results over different keys
// merge exactly into the result over all of them, so keys can be read wherever they lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/model/forward_batch.h"

namespace promptcached::model {

// What a model makes of scores beyond the scaled product of query and key. Distances are those of positions.
struct ScoreRule {
  double softcap = 0;       // s becomes c * tanh(s / c); 0: none
  std::int64_t window = 0;  // only keys less than so many positions before the query are seen; 0: all
  at::Tensor slopes;  // [kv_heads, group] fp32: what a key loses for each position it stands before the query (ALiBi)

  bool is_plain() const { return softcap == 0 && window == 0 && !slopes.defined(); }
  bool needs_positions() const { return window > 0 || slopes.defined(); }
};

// The partial results of all rows of a batch.
struct AttentionSum {
  at::Tensor out;  // [kv_heads, rows, group, head_dim] fp32, contiguous
  at::Tensor lse;  // [kv_heads, rows, group] fp32, contiguous: log-sum-exp
};

// New queries, keys and values of a batch.
struct NewStates {
  at::Tensor q;          // [kv_heads, rows, group, head_dim], contiguous
  at::Tensor k;          // [kv_heads, rows, head_dim], each head contiguous; already rounded to the KV format
  at::Tensor v;          // the same
  at::Tensor positions;  // [rows] int64 on the device, where a rule needs them
};

// Rows of a batch, ascending.
struct RowList {
  std::vector<std::int32_t> rows;
  at::Tensor index;  // `rows` on the device, int64; undefined when they are a run
};

// Keys and values that lie in memory already, and the rows that see all of them (but for the rule's window, of which
// each row sees at least one).
struct StoredKeys {
  at::Tensor k;  // [kv_heads, tokens, head_dim] in the KV format, each head contiguous; tokens > 0
  at::Tensor v;  // the same
  const RowList* rows = nullptr;
  at::Tensor positions{};  // [tokens] int64 on the device, where the rule needs them
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  // Each of `rows` attends to itself alone; begins their sums.
  virtual void begin_self(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum) const = 0;
  // Each of `rows` attends to those of `rows` up to itself; begins their sums.
  virtual void begin_causal(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum) const = 0;
  // The rows of each read attend to all its keys, read in place; adds to their sums.
  virtual void add(const NewStates& states, std::span<const StoredKeys> reads, const ScoreRule& rule,
                   AttentionSum* sum) const = 0;
};

// Plain ATen operations, on any device and in any format: what CUDA uses, and the measure of the others.
std::unique_ptr<AttentionBackend> make_generic_attention();

// For fp32 queries on the CPU. Rules that are not plain are left to the generic operations.
std::unique_ptr<AttentionBackend> make_cpu_attention();

}  // namespace promptcached::model
