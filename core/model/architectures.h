// The table of architectures: what a name in config.json's "architectures" means to the one decoder.
//
// Everything that differs between models of the Llama family is a field here or in ModelConfig; a new member is a new
// row. The defaults are transformers': they apply where config.json leaves a field out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace promptcached::model {

struct Architecture {
  std::string_view name;                      // as in config.json
  std::int64_t default_kv_heads = 0;          // 0: as many as heads
  std::int64_t default_max_positions = 2048;  // max_position_embeddings
  std::int64_t default_sliding_window = 0;    // 0: full attention
  bool has_sliding_window = false;            // the field means something to this architecture
  bool has_attention_bias = true;             // "attention_bias" is read; else there are no biases
  bool has_mlp_bias = true;                   // "mlp_bias" is read
};

// nullptr when the name is not in the table.
const Architecture* find_architecture(std::string_view name);

// All names, in the table's order, for messages: "LlamaForCausalLM, MistralForCausalLM".
std::string known_architectures();

}  // namespace promptcached::model
