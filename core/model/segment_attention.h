// Segment attention: the new rows of a batch attend to KV that lies in many places, all read where it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/attention_backend.h"

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

  // As AttentionBackend::attend.
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv);

 private:
  AttentionSetup setup_;
  std::unique_ptr<AttentionBackend> backend_;
  const ForwardBatch* batch_ = nullptr;
};

}  // namespace promptcached::model
