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
  // `rules`: one for each layer.
  SegmentAttention(const HeadShape& shape, const Compute& compute, std::unique_ptr<AttentionBackend> backend,
                   std::vector<ScoreRule> rules);

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
    const KvRead* read = nullptr;
    RowList rows;
    at::Tensor positions;  // of its keys, where a rule needs them
  };

  // What a batch's rows see through a window of so many positions.
  struct View {
    std::int64_t window = 0;
    std::vector<PlannedRead> whole{};   // all keys
    std::vector<PlannedRead> partly{};  // some keys, at least one a row
    std::vector<RowRange> whole_groups{};
    std::vector<RowRange> partly_groups{};
  };

  void plan(const ForwardBatch& batch, View* view) const;
  at::Tensor key_positions(const KvRead& read) const;
  std::vector<StoredKeys> in_layer(const std::vector<PlannedRead>& reads, std::int64_t layer) const;

  // Tokens [offset, offset + count) of one layer of `array`: [2, kv_heads, count, head_dim], in place.
  at::Tensor view(const KvArray& array, std::int64_t layer, std::int64_t offset, std::int64_t count) const;

  HeadShape shape_;
  Compute compute_;
  std::unique_ptr<AttentionBackend> backend_;
  std::vector<ScoreRule> rules_;  // [layers]
  bool needs_positions_ = false;  // of the batch's rows
  bool has_slopes_ = false;

  const ForwardBatch* batch_ = nullptr;
  at::Tensor positions_;               // of the batch's rows, where a rule needs them
  std::vector<View> views_;            // one for each window that layers have
  std::vector<RowRange> single_rows_;  // runs of rows that are alone in their causal groups
};

}  // namespace promptcached::model
