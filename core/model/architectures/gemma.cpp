// Gemma: norms that add one to their weights, embeddings scaled by the root of the hidden size. Gemma 2 and 3 also
// normalise what is added to the residual stream, and slide a window over some layers; 2 caps scores and logits, 3
// normalises queries and keys and turns sliding layers by a theta of their own.
#include <cmath>

#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_common(const Fields& fields, const SizeDefaults& sizes, ModelConfig* config) {
  read_sizes(fields, sizes, config);
  config->norm.adds_one = true;
  config->norm.eps = fields.number("rms_norm_eps", 1e-6);
  // Early checkpoints say "gelu" in hidden_act and mean what hidden_activation says in later ones.
  config->activation = fields.find("hidden_activation") != nullptr
                           ? read_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
                           : Activation::kGeluTanh;
  config->embedding_scale = std::sqrt(static_cast<double>(config->hidden_size));
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
  config->qkv_bias = config->attention_out_bias = fields.boolean("attention_bias", false);
}

void read_gemma(const Fields& fields, ModelConfig* config) {
  read_common(fields, {.kv_heads = 16, .head_dim = 256, .max_positions = 8192}, config);
  read_rope(fields, config);
}

// What 2 and 3 have in common. Softcaps: absent means the default, null none.
void read_later(const Fields& fields, double default_score_softcap, double default_logit_softcap, ModelConfig* config) {
  config->post_norms = true;
  config->score_scale = 1.0 / std::sqrt(fields.number("query_pre_attn_scalar", 256.0));
  const auto softcap = [&](const char* field, double fallback) {
    return fields.find(field) != nullptr ? fields.number(field) : fields.has(field) ? 0.0 : fallback;
  };
  config->score_softcap = softcap("attn_logit_softcapping", default_score_softcap);
  config->logit_softcap = softcap("final_logit_softcapping", default_logit_softcap);
}

void read_gemma2(const Fields& fields, ModelConfig* config) {
  read_common(fields, {.kv_heads = 4, .head_dim = 256, .max_positions = 8192}, config);
  read_later(fields, 50.0, 30.0, config);
  read_rope(fields, config);
  read_windows(fields, read_window(fields, 4096), config, [](std::int64_t layer) { return layer % 2 == 0; });
}

// ropes[0] turns full layers, ropes[1] sliding ones.
void read_gemma3_ropes(const Fields& fields, ModelConfig* config) {
  constexpr double kTheta = 1e6;
  constexpr double kLocalTheta = 1e4;
  config->positions = PositionKind::kRope;
  config->rotated_dims = config->head_dim;
  config->ropes.resize(2);
  if (const std::optional<Fields> both = fields.object("rope_parameters")) {
    if (const std::optional<Fields> full = both->object("full_attention")) {
      config->ropes[0] = read_rope_object(fields, *full, kTheta, config->max_positions);
    }
    if (const std::optional<Fields> sliding = both->object("sliding_attention")) {
      config->ropes[1] = read_rope_object(fields, *sliding, kLocalTheta, config->max_positions);
    }
    return;
  }
  config->ropes[0].theta = fields.number("rope_theta", kTheta);
  config->ropes[1].theta = fields.number("rope_local_base_freq", kLocalTheta);
  if (const std::optional<Fields> scaling = fields.object("rope_scaling")) {
    config->ropes[0] = read_rope_object(fields, *scaling, config->ropes[0].theta, config->max_positions);
  }
}

void read_gemma3(const Fields& fields, ModelConfig* config) {
  read_common(fields, {.kv_heads = 4, .head_dim = 256, .max_positions = 131072}, config);
  fields.require("use_bidirectional_attention", false);
  read_later(fields, 0.0, 0.0, config);
  config->qk_norm = true;
  read_gemma3_ropes(fields, config);
  const std::int64_t pattern = fields.integer("sliding_window_pattern", 6);
  const auto slides = [pattern](std::int64_t layer) { return (layer + 1) % pattern != 0; };
  read_windows(fields, read_window(fields, 4096), config, slides);
  for (LayerConfig& layer : config->layer_configs) {
    layer.rope = layer.window > 0 ? 1 : 0;
  }
}

WeightNames gemma2_names(const ModelConfig& config) {
  WeightNames names = llama_names(config);
  names.post_attention_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.post_mlp_norm = "post_feedforward_layernorm";
  return names;
}

WeightNames gemma3_names(const ModelConfig& config) {
  WeightNames names = gemma2_names(config);
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}

}  // namespace

const Architecture kGemma = {"GemmaForCausalLM", read_gemma, llama_names};
const Architecture kGemma2 = {"Gemma2ForCausalLM", read_gemma2, gemma2_names};
const Architecture kGemma3 = {"Gemma3ForCausalLM", read_gemma3, gemma3_names};

}  // namespace promptcached::model
