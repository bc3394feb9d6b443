// Attention over one run of keys at a time, summed up over many runs, in plain ATen operations.
//
// For each query a partial result is the softmax-weighted sum of the values it has seen so far, normalised among those
// values alone, and the log of the sum of exponentials that normalised it. Two partial results over different keys
// merge exactly into the result over all of them, so keys can be read wherever they lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/model/attention_backend.h"
#include "core/model/forward_batch.h"

namespace promptcached::model {

// The partial results of all rows of a batch.
struct AttentionSum {
  at::Tensor out;  // [kv_heads, rows, group, head_dim] fp32, contiguous
  at::Tensor lse;  // [kv_heads, rows, group] fp32, contiguous: log-sum-exp
};

// New queries, keys and values of a batch.
struct NewStates {
  at::Tensor q;          // [kv_heads, rows, group, head_dim], contiguous
  at::Tensor k;          // [kv_heads, rows, head_dim]; already rounded to the KV format
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
  at::Tensor k;  // [kv_heads, tokens, head_dim] in the KV format; tokens > 0
  at::Tensor v;  // the same
  const RowList* rows = nullptr;
  at::Tensor positions{};  // [tokens] int64 on the device, where the rule needs them
};

// Each of `rows` attends to itself alone; begins their sums.
void begin_self(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum);
// Each of `rows` attends to those of `rows` up to itself; begins their sums.
void begin_causal(const NewStates& states, RowRange rows, const ScoreRule& rule, AttentionSum* sum);
// The rows of a read attend to all its keys, read in place; adds to their sums.
void add_read(const NewStates& states, const StoredKeys& read, const ScoreRule& rule, AttentionSum* sum);

}  // namespace promptcached::model
