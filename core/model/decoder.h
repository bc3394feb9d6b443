// The decoder: token ids in, next-token logits out, KV stored on the way. One for all architectures: what differs
// between them is data (model_config.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model/device.h"
#include "core/model/forward_batch.h"
#include "core/model/model_config.h"
#include "core/model/rope.h"
#include "core/model/segment_attention.h"
#include "core/model/weights.h"

namespace promptcached::model {

class Decoder final {
 public:
  Decoder(const ModelConfig& config, ModelWeights weights, const Compute& compute,
          std::unique_ptr<AttentionBackend> attention);

  // Logits of the batch's logit rows: [logit rows, vocab] fp32 on the CPU. The batch must have been checked.
  at::Tensor forward(const ForwardBatch& batch);

 private:
  at::Tensor embed(const ForwardBatch& batch) const;
  std::vector<RopeAngles> angles(const ForwardBatch& batch) const;
  // Projections, rotation, KV stores and attention; undefined when nothing of the last layer is wanted.
  at::Tensor attention(std::int64_t layer, const at::Tensor& normed, const std::vector<RopeAngles>& angles,
                       bool only_store);
  at::Tensor mlp_inner(const LayerWeights& layer, const at::Tensor& normed) const;
  // hidden += x * linear, normalised first where the layer has such a norm.
  void add_result(const Linear& linear, const at::Tensor& x, const Norm& post_norm, at::Tensor* hidden) const;
  at::Tensor logits(const at::Tensor& hidden) const;

  ModelConfig config_;
  ModelWeights weights_;
  Compute compute_;
  HeadShape shape_;
  std::vector<Rope> ropes_;
  SegmentAttention attention_;
};

}  // namespace promptcached::model
