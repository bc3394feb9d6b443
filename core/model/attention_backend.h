// Attention of a batch's new rows, one layer at a time: what each row sees in the batch's reads and in its own causal
// group. There are two implementations; docs/decisions/0012 says which serves what.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/device.h"
#include "core/model/elementwise.h"
#include "core/model/forward_batch.h"

namespace promptcached::model {

// What a model makes of scores beyond the scaled product of query and key. Distances are those of positions.
struct ScoreRule {
  double softcap = 0;       // s becomes c * tanh(s / c); 0: none
  std::int64_t window = 0;  // only keys less than so many positions before the query are seen; 0: all
  at::Tensor slopes;  // [kv_heads, group] fp32: what a key loses for each position it stands before the query (ALiBi)

  bool needs_positions() const { return window > 0 || slopes.defined(); }
};

// What stays the same from batch to batch.
struct AttentionSetup {
  HeadShape shape;
  Compute compute;
  std::vector<ScoreRule> rules;  // [layers]

  bool needs_positions() const;
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;

  // Prepares for a batch. Both must stay as they are until the last attend().
  virtual void begin(const AttentionSetup& setup, const ForwardBatch& batch) = 0;

  // What all rows see in their reads and their causal groups, heads side by side.
  virtual at::Tensor attend(std::int64_t layer,
                            const at::Tensor& q,   // [kv_heads, rows, group, head_dim], contiguous
                            const at::Tensor& kv)  // [2, kv_heads, rows, head_dim] in the KV format, contiguous
      = 0;                                         // -> [rows, heads * head_dim] in the attention format
};

// Plain ATen operations, on any device and in any format: what CUDA uses, and the measure of the other.
std::unique_ptr<AttentionBackend> make_generic_attention();

// Our own loops (core/kernels/attention.h), for fp32 queries on the CPU.
std::unique_ptr<AttentionBackend> make_cpu_attention();

// Tokens [offset, offset + count) of one layer of `array`: [2, kv_heads, count, head_dim], in place.
at::Tensor layer_view(const AttentionSetup& setup, const KvArray& array, std::int64_t layer, std::int64_t offset,
                      std::int64_t count);

}  // namespace promptcached::model
