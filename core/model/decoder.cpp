#include "core/model/decoder.h"

#include <cmath>
#include <utility>

#include "core/model/alibi.h"
#include "core/model/aten.h"
#include "core/model/elementwise.h"
#include "core/model/linear.h"

namespace promptcached::model {
namespace {

at::Tensor index_tensor(const std::vector<std::int32_t>& values, at::Device device) {
  return at::tensor(values, at::kInt).to(device);
}

std::vector<Rope> make_ropes(const ModelConfig& config, at::Device device) {
  std::vector<Rope> ropes;
  for (const RopeConfig& rope : config.ropes) {
    ropes.emplace_back(rope, config.rotated_dims, config.text_length, device);
  }
  return ropes;
}

std::vector<ScoreRule> make_rules(const ModelConfig& config, at::Device device) {
  ScoreRule rule;
  rule.softcap = config.score_softcap;
  if (config.positions == PositionKind::kAlibi) {
    rule.slopes = alibi_slopes(config.alibi, config.heads).view({config.kv_heads, config.group()}).to(device);
  }
  std::vector<ScoreRule> rules;
  for (const LayerConfig& layer : config.layer_configs) {
    rules.push_back(rule);
    rules.back().window = layer.window;
  }
  return rules;
}

// Attention divides scores by the root of the head's size; a model that wants another scale has its queries multiplied.
double query_factor(const ModelConfig& config) {
  return config.score_scale > 0 ? config.score_scale * std::sqrt(static_cast<double>(config.head_dim)) : 1.0;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, const Compute& compute,
                 std::unique_ptr<AttentionBackend> attention)
    : config_(config),
      weights_(std::move(weights)),
      compute_(compute),
      shape_{.kv_heads = config.kv_heads, .group = config.group(), .head_dim = config.head_dim},
      ropes_(make_ropes(config, compute.device)),
      attention_(shape_, compute, std::move(attention), make_rules(config, compute.device)) {}

at::Tensor Decoder::embed(const ForwardBatch& batch) const {
  at::Tensor hidden =
      gather(weights_.embedding, batch.tokens, at::TensorOptions().dtype(compute_.weights).device(compute_.device));
  if (weights_.positions.defined()) {
    const at::Tensor rows = index_tensor(batch.positions, compute_.device) + config_.position_offset;
    hidden.add_(weights_.positions.index_select(0, rows));
  }
  if (config_.embedding_scale != 1.0) {
    hidden.mul_(config_.embedding_scale);
  }
  return config_.embedding_norm ? normalize(hidden, weights_.embedding_norm, config_.norm) : hidden;
}

std::vector<RopeAngles> Decoder::angles(const ForwardBatch& batch) const {
  std::vector<RopeAngles> angles;
  if (!ropes_.empty()) {
    const at::Tensor positions = index_tensor(batch.positions, compute_.device).to(at::kFloat);
    for (const Rope& rope : ropes_) {
      angles.push_back(rope.angles(positions));
    }
  }
  return angles;
}

at::Tensor Decoder::attention(std::int64_t layer, const at::Tensor& normed, const std::vector<RopeAngles>& angles,
                              bool only_store) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  at::Tensor qkv = apply(weights.qkv, normed);
  if (config_.qkv_clip > 0) {
    qkv.clamp_(-config_.qkv_clip, config_.qkv_clip);
  }
  const bool rotates = !angles.empty();
  const auto rope = static_cast<std::size_t>(config_.layer_configs[static_cast<std::size_t>(layer)].rope);
  const HeadSteps steps{.q_norm = weights.q_norm,
                        .k_norm = weights.k_norm,
                        .norm_eps = config_.norm.eps,
                        .rotated_dims = rotates ? config_.rotated_dims : 0,
                        .query_factor = query_factor(config_),
                        .kv = compute_.kv};
  const Heads heads = split_heads(qkv.to(compute_.attention), rotates ? angles[rope] : RopeAngles(), shape_, steps);
  // Rounded to the KV format before anything reads it, so that what is computed here and what is read back are equal.
  attention_.write(layer, heads.kv);
  return only_store ? at::Tensor() : attention_.attend(layer, heads.q, heads.kv).to(compute_.weights);
}

at::Tensor Decoder::mlp_inner(const LayerWeights& layer, const at::Tensor& normed) const {
  at::Tensor up = apply(layer.up, normed);
  if (config_.gated_mlp) {
    return activate_gate(config_.activation, up);
  }
  activate(config_.activation, &up);
  return up;
}

void Decoder::add_result(const Linear& linear, const at::Tensor& x, const Norm& post_norm, at::Tensor* hidden) const {
  if (post_norm.weight.defined()) {
    hidden->add_(normalize(apply(linear, x), post_norm, config_.norm));
  } else {
    add_applied(linear, x, hidden);
  }
}

at::Tensor Decoder::forward(const ForwardBatch& batch) {
  attention_.begin(batch);
  const std::vector<RopeAngles> turns = angles(batch);
  at::Tensor hidden = embed(batch);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const bool last = layer + 1 == config_.layers;
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    at::Tensor normed = normalize(hidden, weights.attention_norm, config_.norm);
    at::Tensor attended = attention(layer, normed, turns, last && batch.logit_rows.empty());
    if (!attended.defined()) {
      return at::empty({0, config_.vocab_size}, at::kFloat);
    }
    if (last && static_cast<std::int32_t>(batch.logit_rows.size()) < batch.rows()) {
      // After the last attention, rows no longer see each other: only those whose logits are wanted go on.
      const at::Tensor rows = index_tensor(batch.logit_rows, compute_.device);
      for (at::Tensor* tensor : {&hidden, &attended, &normed}) {
        *tensor = tensor->index_select(0, rows);
      }
    }
    if (config_.parallel_block) {
      // The MLP reads what attention read: before the latter's result is added.
      if (config_.mlp_norm) {
        normed = normalize(hidden, weights.mlp_norm, config_.norm);
      }
      add_result(weights.attention_out, attended, weights.post_attention_norm, &hidden);
    } else {
      add_result(weights.attention_out, attended, weights.post_attention_norm, &hidden);
      normed = normalize(hidden, weights.mlp_norm, config_.norm);
    }
    add_result(weights.down, mlp_inner(weights, normed), weights.post_mlp_norm, &hidden);
  }
  return logits(hidden);
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const {
  const at::Tensor normed = normalize(hidden, weights_.final_norm, config_.norm);
  at::Tensor logits = apply(weights_.head, normed).to(at::kFloat);
  if (config_.logit_softcap > 0) {
    soft_cap(config_.logit_softcap, &logits);
  }
  return logits.to(at::kCPU).contiguous();
}

}  // namespace promptcached::model
