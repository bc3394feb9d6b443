#include "core/model/model_config.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace promptcached::model {
namespace {

using Json = nlohmann::json;

// A JSON object of a file, with getters that name file and field when they refuse.
class Fields final {
 public:
  Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const {
    throw std::runtime_error(where_ + ": field '" + field + "' " + why);
  }

  // nullptr when the field is absent or null, which transformers treat alike.
  const Json* find(const std::string& field) const {
    const auto found = object_->find(field);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
  }

  bool has(const std::string& field) const { return object_->contains(field); }

  std::int64_t integer(const std::string& field, std::optional<std::int64_t> fallback = std::nullopt,
                       std::int64_t least = 1) const {
    const Json* value = find(field);
    if (value == nullptr) {
      if (!fallback) {
        refuse(field, "is missing");
      }
      return *fallback;
    }
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<std::uint64_t>() > kLargest)) {
      refuse(field, "must be an integer, not " + value->dump());
    }
    const auto number = value->get<std::int64_t>();
    if (number < least || number > static_cast<std::int64_t>(kLargest)) {
      refuse(field, "is out of range: " + value->dump());
    }
    return number;
  }

  double number(const std::string& field, std::optional<double> fallback = std::nullopt) const {
    const Json* value = find(field);
    if (value == nullptr) {
      if (!fallback) {
        refuse(field, "is missing");
      }
      return *fallback;
    }
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0) {
      refuse(field, "must be a positive number, not " + value->dump());
    }
    return value->get<double>();
  }

  bool boolean(const std::string& field, bool fallback) const {
    const Json* value = find(field);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_boolean()) {
      refuse(field, "must be true or false, not " + value->dump());
    }
    return value->get<bool>();
  }

  std::string text(const std::string& field, const std::string& fallback) const {
    const Json* value = find(field);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_string()) {
      refuse(field, "must be a string, not " + value->dump());
    }
    return value->get<std::string>();
  }

  // The object under `field`; nothing when it is absent or null.
  std::optional<Fields> object(const std::string& field) const {
    const Json* value = find(field);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!value->is_object()) {
      refuse(field, "must be an object, not " + value->dump());
    }
    return Fields(*value, where_ + ": in '" + field + "'");
  }

 private:
  // Sizes stay far below this, so that products of three of them fit 63 bits.
  static constexpr std::uint64_t kLargest = 1U << 30U;

  const Json* object_;
  std::string where_;
};

Json read_json(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw std::runtime_error("cannot open " + path.string());
  }
  Json document = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.is_object()) {
    throw std::runtime_error(path.string() + " is not a JSON object");
  }
  return document;
}

const Architecture* read_architecture(const Fields& fields) {
  const Json* names = fields.find("architectures");
  if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string()) {
    fields.refuse("architectures", "is missing; known: " + known_architectures());
  }
  const auto name = names->front().get<std::string>();
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) {
    fields.refuse("architectures", "names '" + name + "', which is not supported; known: " + known_architectures());
  }
  return architecture;
}

// The rope type's own fields. `rope` is rope_scaling, or rope_parameters as transformers 5 writes it.
void read_rope_scaling(const Fields& rope, std::int64_t max_positions, RopeConfig* config) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") {
    return;
  }
  if (type == "linear") {
    config->kind = RopeKind::kLinear;
    config->factor = rope.number("factor");
  } else if (type == "llama3") {
    config->kind = RopeKind::kLlama3;
    config->factor = rope.number("factor");
    config->low_freq_factor = rope.number("low_freq_factor");
    config->high_freq_factor = rope.number("high_freq_factor");
    config->original_max_positions = rope.integer("original_max_position_embeddings", max_positions);
    if (config->high_freq_factor <= config->low_freq_factor) {
      rope.refuse("high_freq_factor", "must be greater than low_freq_factor");
    }
  } else {
    rope.refuse("rope_type", "names '" + type + "', which is not supported; known: default, linear, llama3");
  }
}

RopeConfig read_rope(const Fields& fields, std::int64_t max_positions) {
  RopeConfig config;
  config.theta = fields.number("rope_theta", 10000.0);
  double rotated_part = fields.number("partial_rotary_factor", 1.0);
  std::optional<Fields> rope = fields.object("rope_parameters");
  if (!rope) {
    rope = fields.object("rope_scaling");
  }
  if (rope) {
    config.theta = rope->number("rope_theta", config.theta);
    rotated_part = rope->number("partial_rotary_factor", rotated_part);
    read_rope_scaling(*rope, max_positions, &config);
  }
  if (rotated_part != 1.0) {
    fields.refuse("partial_rotary_factor", "is not 1, which is not supported");
  }
  return config;
}

void read_heads(const Fields& fields, ModelConfig* config) {
  config->heads = fields.integer("num_attention_heads");
  // null means one KV head for each head; absent means the architecture's default, often the same.
  const std::int64_t default_kv_heads = config->architecture->default_kv_heads;
  const bool use_default = !fields.has("num_key_value_heads") && default_kv_heads > 0;
  config->kv_heads = fields.integer("num_key_value_heads", use_default ? default_kv_heads : config->heads);
  if (config->heads % config->kv_heads != 0) {
    fields.refuse("num_key_value_heads", "does not divide num_attention_heads");
  }
  if (fields.find("head_dim") == nullptr && config->hidden_size % config->heads != 0) {
    fields.refuse("num_attention_heads", "does not divide hidden_size, and there is no head_dim");
  }
  config->head_dim = fields.integer("head_dim", config->hidden_size / config->heads);
  if (config->head_dim % 2 != 0) {
    fields.refuse("head_dim", "must be even");
  }
}

void read_features(const Fields& fields, ModelConfig* config) {
  const Architecture& architecture = *config->architecture;
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fields.refuse("hidden_act", "names '" + activation + "', which is not supported; known: silu");
  }
  if (fields.find("quantization_config") != nullptr) {
    fields.refuse("quantization_config", "is set: quantised checkpoints are not supported");
  }
  config->norm_eps = fields.number("rms_norm_eps", 1e-6);
  config->attention_bias = architecture.has_attention_bias && fields.boolean("attention_bias", false);
  config->mlp_bias = architecture.has_mlp_bias && fields.boolean("mlp_bias", false);
  config->tied_embeddings = fields.boolean("tie_word_embeddings", false);
  if (architecture.has_sliding_window) {
    // null means none; absent means the architecture's default.
    const bool absent = !fields.has("sliding_window");
    config->sliding_window = fields.integer("sliding_window", absent ? architecture.default_sliding_window : 0);
  }
}

// eos_token_id: an id, a list of ids, or null.
std::vector<std::int32_t> read_end_tokens(const Fields& fields) {
  const Json* value = fields.find("eos_token_id");
  std::vector<std::int32_t> tokens;
  if (value == nullptr) {
    return tokens;
  }
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& token : list) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
        token.get<std::int64_t>() > std::numeric_limits<std::int32_t>::max()) {
      fields.refuse("eos_token_id", "must be a token id or a list of them, not " + value->dump());
    }
    tokens.push_back(token.get<std::int32_t>());
  }
  return tokens;
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    throw std::runtime_error("model directory " + directory.string() + " does not exist");
  }
  const std::filesystem::path path = directory / "config.json";
  const Json document = read_json(path);
  const Fields fields(document, path.string());

  ModelConfig config;
  config.architecture = read_architecture(fields);
  config.hidden_size = fields.integer("hidden_size");
  config.intermediate_size = fields.integer("intermediate_size");
  config.layers = fields.integer("num_hidden_layers");
  config.vocab_size = fields.integer("vocab_size");
  config.max_positions = fields.integer("max_position_embeddings", config.architecture->default_max_positions);
  read_heads(fields, &config);
  read_features(fields, &config);
  config.rope = read_rope(fields, config.max_positions);

  const std::filesystem::path generation_path = directory / "generation_config.json";
  if (std::filesystem::exists(generation_path)) {
    const Json generation = read_json(generation_path);
    config.end_tokens = read_end_tokens(Fields(generation, generation_path.string()));
  }
  if (config.end_tokens.empty()) {
    config.end_tokens = read_end_tokens(fields);
  }
  return config;
}

}  // namespace promptcached::model
