// Phi-3 and Phi-4: Llama with fused projections.
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_phi3(const Fields& fields, ModelConfig* config) {
  read_sizes(fields, {.max_positions = 4096}, config);
  config->norm.eps = fields.number("rms_norm_eps", 1e-5);
  config->activation = read_activation(fields, "hidden_act", "silu");
  config->tied_embeddings = fields.boolean("tie_word_embeddings", false);
  read_rope(fields, config);
  read_windows(fields, fields.integer("sliding_window", 0), config);
}

WeightNames phi3_names(const ModelConfig& config) {
  WeightNames names = llama_names(config);
  names.q = names.k = names.v = names.gate = names.up = {};
  names.qkv = "self_attn.qkv_proj";
  names.qkv_layout = QkvLayout::kConcatenated;
  names.gate_up = "mlp.gate_up_proj";
  return names;
}

}  // namespace

const Architecture kPhi3 = {"Phi3ForCausalLM", read_phi3, phi3_names};

}  // namespace promptcached::model
