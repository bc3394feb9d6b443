// The decoder of the Llama family: token ids in, next-token logits out, KV stored on the way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

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
  // Norm, projections, rotation, KV stores and attention; undefined when nothing of the last layer is wanted.
  at::Tensor attention(std::int64_t layer, const at::Tensor& hidden, const RopeAngles& angles, bool only_store);
  void add_mlp(const LayerWeights& layer, at::Tensor* hidden) const;

  ModelConfig config_;
  ModelWeights weights_;
  Compute compute_;
  HeadShape shape_;
  Rope rope_;
  SegmentAttention attention_;
};

}  // namespace promptcached::model
