// BLOOM: ALiBi, and a norm behind the embedding.
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

// Some files use the names of Megatron, from which BLOOM comes.
std::int64_t either(const Fields& fields, const char* name, const char* other) {
  return fields.find(name) != nullptr ? fields.integer(name) : fields.integer(other);
}

void read_bloom(const Fields& fields, ModelConfig* config) {
  config->hidden_size = either(fields, "hidden_size", "n_embed");
  config->intermediate_size = 4 * config->hidden_size;
  config->layers = either(fields, "n_layer", "num_hidden_layers");
  config->vocab_size = fields.integer("vocab_size");
  config->max_positions = fields.integer("seq_length", 2048);  // of training: ALiBi itself has no end
  config->heads = config->kv_heads = either(fields, "n_head", "num_attention_heads");
  set_head_dim(fields, "n_head", "hidden_size", config);
  fields.require("apply_residual_connection_post_layernorm", false);
  config->norm = {.kind = NormKind::kLayer, .has_bias = true, .eps = fields.number("layer_norm_epsilon", 1e-5)};
  config->positions = PositionKind::kAlibi;
  config->activation = Activation::kGeluTanh;
  config->gated_mlp = false;
  config->qkv_bias = config->attention_out_bias = config->mlp_bias = true;
  config->embedding_norm = true;
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
}

WeightNames bloom_names(const ModelConfig& /*config*/) {
  return {.prefix = "transformer.",
          .embedding = "word_embeddings",
          .embedding_norm = "word_embeddings_layernorm",
          .layer = "h.#.",
          .attention_norm = "input_layernorm",
          .qkv = "self_attention.query_key_value",
          .qkv_layout = QkvLayout::kGrouped,
          .attention_out = "self_attention.dense",
          .mlp_norm = "post_attention_layernorm",
          .up = "mlp.dense_h_to_4h",
          .down = "mlp.dense_4h_to_h",
          .final_norm = "ln_f",
          .head = "lm_head"};
}

}  // namespace

const Architecture kBloom = {"BloomForCausalLM", read_bloom, bloom_names};

}  // namespace promptcached::model
