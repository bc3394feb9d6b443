// What several architectures' readers share.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/model/architectures/architecture.h"

namespace promptcached::model {
namespace {

constexpr std::array<std::pair<std::string_view, Activation>, 8> kActivations = {{
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
}};

// The rope kind's own fields.
void read_rope_kind(const Fields& fields, const Fields& rope, std::int64_t max_positions, RopeConfig* config) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") {
    return;
  }
  // Where the top of config.json says how long texts were in training, it wins (Phi-3, DeepSeek).
  config->original_max_positions = fields.integer("original_max_position_embeddings",
                                                  rope.integer("original_max_position_embeddings", max_positions));
  const double ratio = static_cast<double>(max_positions) / static_cast<double>(config->original_max_positions);
  if (type == "linear") {
    config->kind = RopeKind::kLinear;
    config->factor = rope.number("factor");
  } else if (type == "dynamic") {
    config->kind = RopeKind::kDynamic;
    config->factor = rope.number("factor");
    config->original_max_positions = max_positions;
  } else if (type == "llama3") {
    config->kind = RopeKind::kLlama3;
    config->factor = rope.number("factor");
    config->low_freq_factor = rope.number("low_freq_factor");
    config->high_freq_factor = rope.number("high_freq_factor");
    if (config->high_freq_factor <= config->low_freq_factor) {
      rope.refuse("high_freq_factor", "must be greater than low_freq_factor");
    }
  } else if (type == "yarn") {
    config->kind = RopeKind::kYarn;
    config->factor = rope.number("factor", ratio);
    config->beta_fast = rope.number("beta_fast", 32.0);
    config->beta_slow = rope.number("beta_slow", 1.0);
    config->truncate = rope.boolean("truncate", true);
    const auto optional = [&](const char* field) {
      return rope.find(field) == nullptr ? std::nullopt : std::optional(rope.number(field));
    };
    config->attention_factor = optional("attention_factor");
    config->mscale = optional("mscale");
    config->mscale_all_dim = optional("mscale_all_dim");
  } else if (type == "longrope" || type == "su") {
    config->kind = RopeKind::kLongRope;
    config->factor = rope.number("factor", ratio);
    config->short_factor = rope.numbers("short_factor");
    config->long_factor = rope.numbers("long_factor");
    if (rope.find("attention_factor") != nullptr) {
      config->attention_factor = rope.number("attention_factor");
    }
  } else if (type == "frequency_factors") {  // of GGUF files alone: core/checkpoint/gguf_rope.cpp
    config->kind = RopeKind::kDivided;
    config->divisors = rope.numbers("factors");
  } else {
    rope.refuse("rope_type", "names '" + type +
                                 "', which is not supported; known: default, linear, dynamic, llama3, yarn, longrope");
  }
}

void set_rotated_dims(const Fields& fields, const std::string& field, double part, ModelConfig* config) {
  config->rotated_dims = static_cast<std::int64_t>(static_cast<double>(config->head_dim) * part);
  if (part > 1.0 || config->rotated_dims < 2 || config->rotated_dims % 2 != 0) {
    fields.refuse(field, "must leave an even number of each head's " + std::to_string(config->head_dim) +
                             " dimensions to rotate");
  }
}

}  // namespace

void read_sizes(const Fields& fields, const SizeDefaults& defaults, ModelConfig* config) {
  config->hidden_size = fields.integer("hidden_size");
  config->intermediate_size = fields.integer("intermediate_size");
  config->layers = fields.integer("num_hidden_layers");
  config->vocab_size = fields.integer("vocab_size");
  config->max_positions = fields.integer("max_position_embeddings", defaults.max_positions);
  config->heads = fields.integer("num_attention_heads");
  // null means one KV head for each head; absent means the architecture's default, often the same.
  const bool use_default = !fields.has("num_key_value_heads") && defaults.kv_heads > 0;
  config->kv_heads = fields.integer("num_key_value_heads", use_default ? defaults.kv_heads : config->heads);
  if (config->heads % config->kv_heads != 0) {
    fields.refuse("num_key_value_heads", "does not divide num_attention_heads");
  }
  if (fields.find("head_dim") == nullptr && defaults.head_dim == 0 && config->hidden_size % config->heads != 0) {
    fields.refuse("num_attention_heads", "does not divide hidden_size, and there is no head_dim");
  }
  config->head_dim =
      fields.integer("head_dim", defaults.head_dim > 0 ? defaults.head_dim : config->hidden_size / config->heads);
  if (config->head_dim % 2 != 0) {
    fields.refuse("head_dim", "must be even");
  }
}

void set_head_dim(const Fields& fields, const std::string& heads_field, const std::string& hidden_field,
                  ModelConfig* config) {
  if (config->hidden_size % config->heads != 0) {
    fields.refuse(heads_field, "does not divide " + hidden_field);
  }
  config->head_dim = config->hidden_size / config->heads;
}

Activation read_activation(const Fields& fields, const std::string& field, const std::string& fallback) {
  const std::string name = fields.text(field, fallback);
  const auto* const found =
      std::find_if(kActivations.begin(), kActivations.end(), [&](const auto& known) { return known.first == name; });
  if (found == kActivations.end()) {
    std::string known;
    for (const auto& [other, activation] : kActivations) {
      known += (known.empty() ? "" : ", ") + std::string(other);
    }
    fields.refuse(field, "names '" + name + "', which is not supported; known: " + known);
  }
  return found->second;
}

RopeConfig read_rope_object(const Fields& fields, const Fields& rope, double default_theta,
                            std::int64_t max_positions) {
  RopeConfig config;
  config.theta = rope.number("rope_theta", default_theta);
  read_rope_kind(fields, rope, max_positions, &config);
  return config;
}

void read_rope(const Fields& fields, ModelConfig* config, const RotatedPart& older) {
  constexpr const char* kPart = "partial_rotary_factor";
  config->positions = PositionKind::kRope;
  RopeConfig rope;
  rope.theta = fields.number("rope_theta", 10000.0);
  std::string part_field = fields.find(kPart) != nullptr ? kPart : older.field;
  double part = fields.number(part_field, older.otherwise);
  std::optional<Fields> object = fields.object("rope_parameters");  // as transformers 5 writes it
  if (!object) {
    object = fields.object("rope_scaling");
  }
  if (object) {
    rope = read_rope_object(fields, *object, rope.theta, config->max_positions);
  }
  if (object && object->find(kPart) != nullptr) {
    part_field = kPart;
    part = object->number(kPart);
  }
  config->ropes = {rope};
  set_rotated_dims(fields, part_field, part, config);
}

std::int64_t read_window(const Fields& fields, std::int64_t absent) {
  return fields.integer("sliding_window", fields.has("sliding_window") ? 0 : absent);
}

void read_windows(const Fields& fields, std::int64_t window, ModelConfig* config,
                  const std::function<bool(std::int64_t layer)>& slides) {
  config->layer_configs.resize(static_cast<std::size_t>(config->layers));
  const std::vector<std::string> types = fields.texts("layer_types");
  if (!types.empty() && types.size() != static_cast<std::size_t>(config->layers)) {
    fields.refuse("layer_types", "must name a type for each of num_hidden_layers layers");
  }
  for (std::int64_t layer = 0; layer < config->layers; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    if (!types.empty() && types[index] != "sliding_attention" && types[index] != "full_attention") {
      fields.refuse("layer_types",
                    "names '" + types[index] + "', which is not supported; known: sliding_attention, full_attention");
    }
    const bool sliding = types.empty() ? !slides || slides(layer) : types[index] == "sliding_attention";
    config->layer_configs[index].window = sliding ? window : 0;
  }
}

WeightNames llama_names(const ModelConfig& /*config*/) {
  return {.prefix = "model.",
          .embedding = "embed_tokens",
          .layer = "layers.#.",
          .attention_norm = "input_layernorm",
          .q = "self_attn.q_proj",
          .k = "self_attn.k_proj",
          .v = "self_attn.v_proj",
          .attention_out = "self_attn.o_proj",
          .mlp_norm = "post_attention_layernorm",
          .gate = "mlp.gate_proj",
          .up = "mlp.up_proj",
          .down = "mlp.down_proj",
          .final_norm = "norm",
          .head = "lm_head"};
}

}  // namespace promptcached::model
