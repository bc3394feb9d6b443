#include "core/model/decoder.h"

#include <utility>

#include "core/model/aten.h"
#include "core/model/elementwise.h"
#include "core/model/linear.h"

namespace promptcached::model {
namespace {

at::Tensor index_tensor(const std::vector<std::int32_t>& values, at::Device device) {
  return at::tensor(values, at::kInt).to(device);
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, const Compute& compute,
                 std::unique_ptr<AttentionBackend> attention)
    : config_(config),
      weights_(std::move(weights)),
      compute_(compute),
      shape_{.kv_heads = config.kv_heads, .group = config.group(), .head_dim = config.head_dim},
      rope_(config.rope, config.head_dim, compute.device),
      attention_(shape_, compute, std::move(attention)) {}

at::Tensor Decoder::attention(std::int64_t layer, const at::Tensor& hidden, const RopeAngles& angles, bool only_store) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const at::Tensor normed = rms_norm(hidden, weights.attention_norm, config_.norm_eps);
  const at::Tensor qkv = apply(weights.qkv, normed).to(compute_.attention);
  const Heads heads = split_and_rotate(qkv, angles, shape_);
  // Rounded to the KV format before anything reads it, so that what is computed here and what is read back are equal.
  const at::Tensor kv = heads.kv.to(compute_.kv);
  attention_.write(layer, kv);
  return only_store ? at::Tensor() : attention_.attend(layer, heads.q, kv);
}

void Decoder::add_mlp(const LayerWeights& layer, at::Tensor* hidden) const {
  const at::Tensor normed = rms_norm(*hidden, layer.mlp_norm, config_.norm_eps);
  add_applied(layer.down, silu_times(apply(layer.gate_up, normed)), hidden);
}

at::Tensor Decoder::forward(const ForwardBatch& batch) {
  attention_.begin(batch);
  const RopeAngles angles = rope_.angles(batch.positions);
  at::Tensor hidden = weights_.embedding.index_select(0, index_tensor(batch.tokens, compute_.device));
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const bool last = layer + 1 == config_.layers;
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    at::Tensor attended = attention(layer, hidden, angles, last && batch.logit_rows.empty());
    if (!attended.defined()) {
      return at::empty({0, config_.vocab_size}, at::kFloat);
    }
    if (last && static_cast<std::int32_t>(batch.logit_rows.size()) < batch.rows()) {
      // After the last attention, rows no longer see each other: only those whose logits are wanted go on.
      const at::Tensor rows = index_tensor(batch.logit_rows, compute_.device);
      hidden = hidden.index_select(0, rows);
      attended = attended.index_select(0, rows);
    }
    add_applied(weights.attention_out, attended.to(compute_.weights), &hidden);
    add_mlp(weights, &hidden);
  }
  const at::Tensor normed = rms_norm(hidden, weights_.final_norm, config_.norm_eps);
  return apply(weights_.head, normed).to(at::kFloat).to(at::kCPU).contiguous();
}

}  // namespace promptcached::model
