// Llama and the models that are Llama but for a detail: Mistral (sliding window), Qwen 2 (biases of queries, keys and
// values) and Qwen 3 (normalised queries and keys).
#include "core/model/architectures/families.h"

namespace promptcached::model {
namespace {

void read_common(const Fields& fields, const SizeDefaults& sizes, ModelConfig* config) {
  read_sizes(fields, sizes, config);
  config->norm.eps = fields.number("rms_norm_eps", 1e-6);
  config->activation = read_activation(fields, "hidden_act", "silu");
  config->tied_embeddings = fields.boolean("tie_word_embeddings", false);
  read_rope(fields, config);
}

void read_llama(const Fields& fields, ModelConfig* config) {
  read_common(fields, {}, config);
  config->qkv_bias = config->attention_out_bias = fields.boolean("attention_bias", false);
  config->mlp_bias = fields.boolean("mlp_bias", false);
}

void read_mistral(const Fields& fields, ModelConfig* config) {
  read_common(fields, {.kv_heads = 8, .max_positions = 131072}, config);
  read_windows(fields, read_window(fields, 4096), config);
}

// Windows from layer max_window_layers on, where they are used at all.
void read_qwen_windows(const Fields& fields, ModelConfig* config) {
  const bool used = fields.boolean("use_sliding_window", false);
  const std::int64_t window = used ? fields.integer("sliding_window", 4096) : 0;
  const auto slides = [&](std::int64_t layer) { return layer >= fields.integer("max_window_layers", 28, /*least=*/0); };
  read_windows(fields, window, config, slides);
}

void read_qwen2(const Fields& fields, ModelConfig* config) {
  read_common(fields, {.kv_heads = 32, .max_positions = 32768}, config);
  config->qkv_bias = true;
  read_qwen_windows(fields, config);
}

void read_qwen3(const Fields& fields, ModelConfig* config) {
  read_common(fields, {.kv_heads = 32, .head_dim = 128, .max_positions = 32768}, config);
  config->qkv_bias = config->attention_out_bias = fields.boolean("attention_bias", false);
  config->qk_norm = true;
  read_qwen_windows(fields, config);
}

WeightNames qwen3_names(const ModelConfig& config) {
  WeightNames names = llama_names(config);
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}

}  // namespace

const Architecture kLlama = {"LlamaForCausalLM", read_llama, llama_names};
const Architecture kMistral = {"MistralForCausalLM", read_mistral, llama_names};
const Architecture kQwen2 = {"Qwen2ForCausalLM", read_qwen2, llama_names};
const Architecture kQwen3 = {"Qwen3ForCausalLM", read_qwen3, qwen3_names};

}  // namespace promptcached::model
