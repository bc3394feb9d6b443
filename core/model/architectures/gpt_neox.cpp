// GPT-NeoX and Pythia: attention and MLP in parallel, a part of each head rotated.
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_gpt_neox(const Fields& fields, ModelConfig* config) {
  read_sizes(fields, {.max_positions = 2048}, config);
  config->norm = {.kind = NormKind::kLayer, .has_bias = true, .eps = fields.number("layer_norm_eps", 1e-5)};
  config->activation = read_activation(fields, "hidden_act", "gelu");
  config->gated_mlp = false;
  config->qkv_bias = config->attention_out_bias = fields.boolean("attention_bias", true);
  config->mlp_bias = true;
  config->parallel_block = fields.boolean("use_parallel_residual", true);
  config->tied_embeddings = fields.boolean("tie_word_embeddings", false);
  // transformers 4 called the rotated part rotary_pct and theta rotary_emb_base.
  read_rope(fields, config, {.field = "rotary_pct", .otherwise = 0.25});
  if (fields.find("rotary_emb_base") != nullptr) {
    config->ropes.front().theta = fields.number("rotary_emb_base");
  }
}

WeightNames gpt_neox_names(const ModelConfig& /*config*/) {
  return {.prefix = "gpt_neox.",
          .embedding = "embed_in",
          .layer = "layers.#.",
          .attention_norm = "input_layernorm",
          .qkv = "attention.query_key_value",
          .qkv_layout = QkvLayout::kGrouped,
          .attention_out = "attention.dense",
          .mlp_norm = "post_attention_layernorm",
          .up = "mlp.dense_h_to_4h",
          .down = "mlp.dense_4h_to_h",
          .final_norm = "final_layer_norm",
          .head = "embed_out"};
}

}  // namespace

const Architecture kGptNeoX = {"GPTNeoXForCausalLM", read_gpt_neox, gpt_neox_names};

}  // namespace promptcached::model
