// Segment attention: the new rows of a batch attend to KV that lies in many places, all read where it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/attention_backend.h"
#include "core/model/device.h"
#include "core/model/elementwise.h"
#include "core/model/forward_batch.h"

namespace promptcached::model {

class SegmentAttention final {
 public:
  SegmentAttention(const HeadShape& shape, const Compute& compute, std::unique_ptr<AttentionBackend> backend);

  // Prepares for `batch`, which must stay as it is until the last layer's attend().
  void begin(const ForwardBatch& batch);

  // Stores the new keys and values where the batch's writes say.
  void write(std::int64_t layer, const at::Tensor& kv);  // [2, kv_heads, rows, head_dim] in the KV format

  // What all rows see in their reads and their causal groups, heads side by side.
  at::Tensor attend(std::int64_t layer,
                    const at::Tensor& q,    // [kv_heads, rows, group, head_dim] in the attention format
                    const at::Tensor& kv);  // [2, kv_heads, rows, head_dim] in the KV format
                                            // -> [rows, heads * head_dim] in the attention format

 private:
  struct PlannedRead {
    KvRead read;
    RowList rows;
  };

  // Tokens [offset, offset + count) of one layer of `array`: [2, kv_heads, count, head_dim], in place.
  at::Tensor view(const KvArray& array, std::int64_t layer, std::int64_t offset, std::int64_t count) const;

  HeadShape shape_;
  Compute compute_;
  std::unique_ptr<AttentionBackend> backend_;

  const ForwardBatch* batch_ = nullptr;
  std::vector<PlannedRead> reads_;
  std::vector<StoredKeys> layer_reads_;  // reads_ in one layer
  std::vector<RowRange> single_rows_;    // runs of rows that are alone in their causal groups
  std::vector<RowRange> causal_groups_;  // groups of several rows
};

}  // namespace promptcached::model
