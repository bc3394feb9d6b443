// GPT-2: learned positions, and linear weights stored the other way round.
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_gpt2(const Fields& fields, ModelConfig* config) {
  config->hidden_size = fields.integer("n_embd");
  config->intermediate_size = fields.integer("n_inner", 4 * config->hidden_size);
  config->layers = fields.integer("n_layer");
  config->vocab_size = fields.integer("vocab_size");
  config->max_positions = fields.integer("n_positions", 1024);
  config->heads = config->kv_heads = fields.integer("n_head");
  set_head_dim(fields, "n_head", "n_embd", config);
  fields.require("scale_attn_weights", true);
  fields.require("scale_attn_by_inverse_layer_idx", false);
  fields.require("add_cross_attention", false);
  config->norm = {.kind = NormKind::kLayer, .has_bias = true, .eps = fields.number("layer_norm_epsilon", 1e-5)};
  config->positions = PositionKind::kLearned;
  config->activation = read_activation(fields, "activation_function", "gelu_new");
  config->gated_mlp = false;
  config->qkv_bias = config->attention_out_bias = config->mlp_bias = true;
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
}

WeightNames gpt2_names(const ModelConfig& /*config*/) {
  return {.prefix = "transformer.",
          .embedding = "wte",
          .positions = "wpe",
          .layer = "h.#.",
          .attention_norm = "ln_1",
          .qkv = "attn.c_attn",
          .qkv_layout = QkvLayout::kConcatenated,
          .attention_out = "attn.c_proj",
          .mlp_norm = "ln_2",
          .up = "mlp.c_fc",
          .down = "mlp.c_proj",
          .final_norm = "ln_f",
          .head = "lm_head",
          .transposed = true};
}

}  // namespace

const Architecture kGpt2 = {"GPT2LMHeadModel", read_gpt2, gpt2_names};

}  // namespace promptcached::model
