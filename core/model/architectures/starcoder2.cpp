// StarCoder 2: a Llama with layer norms, biases everywhere, and an MLP that is not gated.
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_starcoder2(const Fields& fields, ModelConfig* config) {
  read_sizes(fields, {.kv_heads = 2, .max_positions = 4096}, config);
  read_rope(fields, config);
  config->norm = {.kind = NormKind::kLayer, .has_bias = true, .eps = fields.number("norm_epsilon", 1e-5)};
  config->activation = read_activation(fields, "hidden_act", "gelu_pytorch_tanh");
  config->gated_mlp = false;
  config->qkv_bias = config->attention_out_bias = config->mlp_bias = fields.boolean("use_bias", true);
  config->tied_embeddings = fields.boolean("tie_word_embeddings", true);
  if (fields.find("sliding_window") != nullptr) {
    read_windows(fields, fields.integer("sliding_window"), config);
  }
}

WeightNames starcoder2_names(const ModelConfig& config) {
  WeightNames names = llama_names(config);
  names.gate = {};
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}

}  // namespace

const Architecture kStarcoder2 = {"Starcoder2ForCausalLM", read_starcoder2, starcoder2_names};

}  // namespace promptcached::model
