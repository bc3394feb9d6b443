// Falcon: attention and MLP in parallel. 7B has one KV head and one norm for both, 40B and later several KV heads and,
// but for 11B, two norms; the early 1B and 7B "RW" models are sequential, with ALiBi.
#include <cmath>

#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_heads(const Fields& fields, ModelConfig* config) {
  config->heads = fields.integer("num_attention_heads");
  set_head_dim(fields, "num_attention_heads", "hidden_size", config);
  if (fields.boolean("new_decoder_architecture", false)) {
    config->kv_heads = fields.integer("num_kv_heads", config->heads);
  } else {
    config->kv_heads = fields.boolean("multi_query", true) ? 1 : config->heads;
  }
  if (config->heads % config->kv_heads != 0) {
    fields.refuse("num_kv_heads", "does not divide num_attention_heads");
  }
}

void read_falcon(const Fields& fields, ModelConfig* config) {
  config->hidden_size = fields.integer("hidden_size");
  config->intermediate_size = fields.integer("ffn_hidden_size", 4 * config->hidden_size);
  config->layers = fields.integer("num_hidden_layers");
  config->vocab_size = fields.integer("vocab_size");
  config->max_positions = fields.integer("max_position_embeddings", 2048);
  read_heads(fields, config);
  config->norm = {.kind = NormKind::kLayer, .has_bias = true, .eps = fields.number("layer_norm_epsilon", 1e-5)};
  if (fields.boolean("alibi", false)) {
    config->positions = PositionKind::kAlibi;
    // The distances' bias is divided by the root of the head's size along with the scores, and its slopes are bf16.
    config->alibi = {.scale = 1.0 / std::sqrt(static_cast<double>(config->head_dim)), .rounds_to_bf16 = true};
  } else {
    read_rope(fields, config);
  }
  const bool is_new = fields.boolean("new_decoder_architecture", false);
  config->parallel_block = is_new || fields.boolean("parallel_attn", true);
  config->mlp_norm = !config->parallel_block || (is_new && fields.integer("num_ln_in_parallel_attn", 2) == 2);
  config->activation = read_activation(fields, "activation", "gelu");
  config->gated_mlp = false;
  config->qkv_bias = config->attention_out_bias = config->mlp_bias = fields.boolean("bias", false);
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
}

WeightNames falcon_names(const ModelConfig& config) {
  const bool two_norms = config.parallel_block && config.mlp_norm;
  return {.prefix = "transformer.",
          .embedding = "word_embeddings",
          .layer = "h.#.",
          .attention_norm = two_norms ? "ln_attn" : "input_layernorm",
          .qkv = "self_attention.query_key_value",
          .qkv_layout = QkvLayout::kGrouped,
          .attention_out = "self_attention.dense",
          .mlp_norm = two_norms ? "ln_mlp" : "post_attention_layernorm",
          .up = "mlp.dense_h_to_4h",
          .down = "mlp.dense_4h_to_h",
          .final_norm = "ln_f",
          .head = "lm_head"};
}

}  // namespace

const Architecture kFalcon = {"FalconForCausalLM", read_falcon, falcon_names};

}  // namespace promptcached::model
