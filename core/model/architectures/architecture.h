// The table of architectures: what a name in config.json's "architectures" means to the one decoder.
//
// A new model is a new row: how its config.json becomes a ModelConfig, and what its tensors are called
// (docs/add-a-model.md).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/model/config_fields.h"
#include "core/model/model_config.h"

namespace promptcached::model {

// How the fused projection's rows stand. The decoder wants all query heads, then all key heads, then all value heads.
enum class QkvLayout {
  kSeparate,      // three tensors
  kConcatenated,  // as the decoder wants them
  kGrouped,       // for each KV head: its query heads, its key, its value
};

// Names of tensors without ".weight" and ".bias"; those of layers without `layer`. Empty: the family has no such
// tensor.
struct WeightNames {
  std::string_view prefix{};  // of all names; some checkpoints leave it out
  std::string_view embedding{};
  std::string_view positions{};  // learned positions
  std::string_view embedding_norm{};
  std::string_view layer{};  // "layers.#.": # stands for the layer's number
  std::string_view attention_norm{};
  std::string_view q{}, k{}, v{};  // QkvLayout::kSeparate
  std::string_view qkv{};          // the others
  QkvLayout qkv_layout = QkvLayout::kSeparate;
  std::string_view q_norm{}, k_norm{};
  std::string_view attention_out{};
  std::string_view post_attention_norm{};
  std::string_view mlp_norm{};
  std::string_view gate{}, up{};  // `gate` for gated MLPs alone
  std::string_view gate_up{};     // gate and up as one tensor, in this order
  std::string_view down{};
  std::string_view post_mlp_norm{};
  std::string_view final_norm{};
  std::string_view head{};            // without `prefix`
  bool transposed = false;            // linear weights are stored [in, out]
  bool norms_hold_one = false;        // NormConfig::adds_one has been added in the file
  bool rotated_pairs_adjoin = false;  // rows of queries and keys that rotation turns together stand side by side
};

struct Architecture {
  std::string_view name;  // as in config.json
  // Fills in everything but architecture and end_tokens.
  void (*read_config)(const Fields& fields, ModelConfig* config);
  // Some families' names depend on the configuration.
  WeightNames (*weight_names)(const ModelConfig& config);
};

// The names that llama.cpp gives the same tensors in GGUF files, and how it has rearranged them.
WeightNames gguf_names(const ModelConfig& config);

// nullptr when the name is not in the table.
const Architecture* find_architecture(std::string_view name);

// All names, in the table's order, for messages: "LlamaForCausalLM, MistralForCausalLM".
std::string known_architectures();

// ---- What several architectures' readers share ----

// hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, vocab_size and
// max_position_embeddings, with the family's defaults where transformers have some.
struct SizeDefaults {
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  std::int64_t max_positions = 2048;
};
void read_sizes(const Fields& fields, const SizeDefaults& defaults, ModelConfig* config);

// head_dim as each head's share of the hidden size, both of which are known. The fields are those that said so.
void set_head_dim(const Fields& fields, const std::string& heads_field, const std::string& hidden_field,
                  ModelConfig* config);

// The field's activation by any of its usual names.
Activation read_activation(const Fields& fields, const std::string& field, const std::string& fallback);

// What a family calls the part of a head that is rotated where partial_rotary_factor does not say it.
struct RotatedPart {
  std::string field = "partial_rotary_factor";
  double otherwise = 1.0;
};

// One rope for all layers: rope_parameters, or rope_theta and rope_scaling.
void read_rope(const Fields& fields, ModelConfig* config, const RotatedPart& older = {});
// The same from one object, for models with several.
RopeConfig read_rope_object(const Fields& fields, const Fields& rope, double default_theta, std::int64_t max_positions);

// "sliding_window": null means none, 0; absent means the architecture's default.
std::int64_t read_window(const Fields& fields, std::int64_t absent);

// Windows of `window` positions for the layers that "layer_types" calls sliding; where the field is missing, for those
// that `slides` says: by default all.
void read_windows(const Fields& fields, std::int64_t window, ModelConfig* config,
                  const std::function<bool(std::int64_t layer)>& slides = {});

// "model." names of the Llama family, which many others keep.
WeightNames llama_names(const ModelConfig& config);

}  // namespace promptcached::model
