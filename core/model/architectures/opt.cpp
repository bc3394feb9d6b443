// OPT: learned positions, whose table has two rows in front of position 0.
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_opt(const Fields& fields, ModelConfig* config) {
  config->hidden_size = fields.integer("hidden_size");
  config->intermediate_size = fields.integer("ffn_dim");
  config->layers = fields.integer("num_hidden_layers");
  config->vocab_size = fields.integer("vocab_size");
  config->max_positions = fields.integer("max_position_embeddings", 2048);
  config->heads = config->kv_heads = fields.integer("num_attention_heads");
  set_head_dim(fields, "num_attention_heads", "hidden_size", config);
  // OPT-350M alone is built otherwise.
  fields.require("do_layer_norm_before", true);
  fields.require("_remove_final_layer_norm", false);
  fields.require("layer_norm_elementwise_affine", true);
  fields.require("word_embed_proj_dim", config->hidden_size);
  config->norm = {.kind = NormKind::kLayer, .has_bias = true, .eps = 1e-5};
  config->positions = PositionKind::kLearned;
  config->position_offset = 2;
  config->activation = read_activation(fields, "activation_function", "relu");
  config->gated_mlp = false;
  config->qkv_bias = config->attention_out_bias = config->mlp_bias = fields.boolean("enable_bias", true);
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
}

WeightNames opt_names(const ModelConfig& /*config*/) {
  return {.prefix = "model.decoder.",
          .embedding = "embed_tokens",
          .positions = "embed_positions",
          .layer = "layers.#.",
          .attention_norm = "self_attn_layer_norm",
          .q = "self_attn.q_proj",
          .k = "self_attn.k_proj",
          .v = "self_attn.v_proj",
          .attention_out = "self_attn.out_proj",
          .mlp_norm = "final_layer_norm",
          .up = "fc1",
          .down = "fc2",
          .final_norm = "final_layer_norm",
          .head = "lm_head"};
}

}  // namespace

const Architecture kOpt = {"OPTForCausalLM", read_opt, opt_names};

}  // namespace promptcached::model
