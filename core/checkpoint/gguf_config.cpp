#include "core/checkpoint/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/checkpoint/gguf_metadata.h"
#include "core/checkpoint/gguf_rope.h"
#include "core/checkpoint/gguf_vocabulary.h"

namespace promptcached::checkpoint {
namespace {

using Json = nlohmann::json;

// The keys of one architecture in one file.
struct Source {
  const GgufFile& file;
  std::string architecture;

  std::string key(const std::string& name) const { return architecture + "." + name; }
  bool has(const std::string& name) const { return file.has(key(name)); }
  std::int64_t integer(const std::string& name) const { return required_integer(file, key(name)); }
  std::int64_t integer(const std::string& name, std::int64_t fallback) const {
    return uniform_integer(file, key(name)).value_or(fallback);
  }
  double decimal(const std::string& name, double fallback) const {
    return checkpoint::decimal(file, key(name)).value_or(fallback);
  }
  bool has_tensor(const std::string& name) const { return file.tensors().find(name) != nullptr; }
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    refuse_metadata(file, key(name), why);
  }
  [[noreturn]] void refuse_tensor(const std::string& name, const std::string& why) const {
    throw std::runtime_error(file.path().string() + ": tensor '" + name + "' " + why);
  }
};

// ---- Sizes ----

std::int64_t head_dim(const Source& source) {
  const std::int64_t hidden = source.integer("embedding_length");
  const std::int64_t heads = source.integer("attention.head_count");
  if (heads < 1) {
    source.refuse("attention.head_count", "must be positive");
  }
  const std::int64_t keys = source.integer("attention.key_length", hidden / heads);
  if (!source.has("attention.key_length") && hidden % heads != 0) {
    source.refuse("attention.head_count", "does not divide embedding_length, and there is no attention.key_length");
  }
  const std::int64_t values = source.integer("attention.value_length", keys);
  if (values != keys) {
    source.refuse("attention.value_length",
                  "is " + std::to_string(values) + ", but keys have " + std::to_string(keys) + " dimensions");
  }
  return keys;
}

// The rows of the embedding, which everything else that counts tokens must agree with.
std::int64_t vocabulary_size(const Source& source, const GgufVocabulary& vocabulary) {
  const StoredTensor* embedding = source.file.tensors().find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    source.refuse_tensor("token_embd.weight", "is missing, or no matrix");
  }
  const std::int64_t rows = embedding->shape[0];
  const auto disagrees = [&](const std::string& key, std::int64_t size) {
    refuse_metadata(source.file, key,
                    "counts " + std::to_string(size) + " tokens, but tensor 'token_embd.weight' has " +
                        std::to_string(rows) + " rows");
  };
  if (const auto tokens = static_cast<std::int64_t>(vocabulary.tokens.size()); tokens != rows) {
    disagrees("tokenizer.ggml.tokens", tokens);
  }
  if (const std::int64_t stated = source.integer("vocab_size", rows); stated != rows) {
    disagrees(source.key("vocab_size"), stated);
  }
  return rows;
}

Json sizes(const Source& source, const GgufVocabulary& vocabulary) {
  const std::int64_t heads = source.integer("attention.head_count");
  return {{"hidden_size", source.integer("embedding_length")},
          {"intermediate_size", source.integer("feed_forward_length")},
          {"num_hidden_layers", source.integer("block_count")},
          {"num_attention_heads", heads},
          {"num_key_value_heads", source.integer("attention.head_count_kv", heads)},
          {"head_dim", head_dim(source)},
          {"max_position_embeddings", source.integer("context_length")},
          {"vocab_size", vocabulary_size(source, vocabulary)}};
}

// ---- Rotation ----

// The part that readers multiply head_dim by and round down: it must come out as `rotated` again.
double rotated_part(std::int64_t rotated, std::int64_t head_dim) {
  const double part = static_cast<double>(rotated) / static_cast<double>(head_dim);
  const bool is_short = static_cast<std::int64_t>(part * static_cast<double>(head_dim)) < rotated;
  return is_short ? std::nextafter(part, std::numeric_limits<double>::max()) : part;
}

void add_rope(const Source& source, Json* config) {
  const auto dims = config->at("head_dim").get<std::int64_t>();
  const std::int64_t rotated = source.integer("rope.dimension_count", dims);
  if (rotated < 2 || rotated > dims || rotated % 2 != 0) {
    source.refuse("rope.dimension_count", "is " + std::to_string(rotated) + ", which must be even and at most " +
                                              std::to_string(dims) + ", the dimensions of a head");
  }
  if (rotated != dims) {
    (*config)["partial_rotary_factor"] = rotated_part(rotated, dims);
  }
  (*config)["rope_theta"] = source.decimal("rope.freq_base", 10000.0);
  (*config)["rope_scaling"] = gguf_rope_scaling(source.file, source.architecture, rotated);
}

// ---- What the families do not share ----

// Queries, keys and values have biases, and the projection behind attention too.
void add_attention_bias(const Source& source, Json* config) {
  const bool has_bias = source.has_tensor("blk.0.attn_q.bias");
  if (has_bias != source.has_tensor("blk.0.attn_output.bias")) {
    source.refuse_tensor(has_bias ? "blk.0.attn_output.bias" : "blk.0.attn_q.bias",
                         "is missing, though attention has biases elsewhere: not supported for this architecture");
  }
  (*config)["attention_bias"] = has_bias;
}

// Mistral's models are Llamas to GGUF; a window tells them apart where there is one.
void add_llama(const Source& source, Json* config) {
  add_attention_bias(source, config);
  (*config)["mlp_bias"] = source.has_tensor("blk.0.ffn_down.bias");
  if (const std::int64_t window = source.integer("attention.sliding_window", 0); window > 0) {
    if (config->at("attention_bias").get<bool>() || config->at("mlp_bias").get<bool>()) {
      source.refuse("attention.sliding_window", "is not supported in a model with biases");
    }
    (*config)["architectures"] = Json::array({"MistralForCausalLM"});
    (*config)["model_type"] = "mistral";
    (*config)["sliding_window"] = window;
  }
}

void add_qwen2(const Source& /*source*/, Json* config) { (*config)["use_sliding_window"] = false; }

void add_qwen3(const Source& source, Json* config) {
  add_attention_bias(source, config);
  (*config)["use_sliding_window"] = false;
}

void add_phi3(const Source& source, Json* config) {
  const std::int64_t window = source.integer("attention.sliding_window", 0);
  (*config)["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
}

void add_gemma(const Source& source, Json* config) {
  add_attention_bias(source, config);
  (*config)["hidden_activation"] = (*config)["hidden_act"] = "gelu_pytorch_tanh";
}

// What 2 and 3 have in common. No key says by what scores are scaled: it is the size of a head in all models but the
// one of `largest` layers, where it is the share of the hidden size that falls to a head (ggml tells them apart so,
// too).
void add_later_gemma(const Source& source, std::int64_t largest, std::int64_t period, Json* config) {
  add_gemma(source, config);
  const auto layers = config->at("num_hidden_layers").get<std::int64_t>();
  const auto share =
      config->at("hidden_size").get<std::int64_t>() / config->at("num_attention_heads").get<std::int64_t>();
  (*config)["query_pre_attn_scalar"] = layers == largest ? Json(share) : config->at("head_dim");
  const std::int64_t stated = source.integer("attention.sliding_window_pattern", period);
  if (stated < 1) {
    source.refuse("attention.sliding_window_pattern", "must be positive");
  }
  Json types = Json::array();
  for (std::int64_t layer = 1; layer <= layers; ++layer) {
    types.push_back(layer % stated == 0 ? "full_attention" : "sliding_attention");
  }
  (*config)["layer_types"] = types;
}

void add_gemma2(const Source& source, Json* config) {
  add_later_gemma(source, /*largest=*/46, /*period=*/2, config);
  (*config)["attn_logit_softcapping"] = source.decimal("attn_logit_softcapping", 50.0);
  (*config)["final_logit_softcapping"] = source.decimal("final_logit_softcapping", 30.0);
  (*config)["sliding_window"] = source.integer("attention.sliding_window", 4096);
}

void add_gemma3(const Source& source, Json* config) {
  add_later_gemma(source, /*largest=*/62, /*period=*/6, config);
  if (config->contains("partial_rotary_factor")) {
    source.refuse("rope.dimension_count", "must be the size of a head for this architecture");
  }
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    const double cap = source.decimal(name, 0.0);
    (*config)[name] = cap > 0 ? Json(cap) : Json(nullptr);
  }
  (*config)["sliding_window"] = source.integer("attention.sliding_window");
  (*config)["rope_local_base_freq"] = source.decimal("rope.freq_base_swa", 10000.0);
}

struct Family {
  const char* gguf_name;  // general.architecture
  const char* model_type;
  const char* architecture;
  void (*add)(const Source& source, Json* config);
};

constexpr std::array<Family, 7> kFamilies = {{
    {"llama", "llama", "LlamaForCausalLM", add_llama},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", add_qwen2},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", add_qwen3},
    {"gemma", "gemma", "GemmaForCausalLM", add_gemma},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", add_gemma2},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", add_gemma3},
    {"phi3", "phi3", "Phi3ForCausalLM", add_phi3},
}};

const Family& find_family(const GgufFile& file) {
  constexpr const char* kKey = "general.architecture";
  const std::string name = required_text(file, kKey);
  std::string known;
  for (const Family& family : kFamilies) {
    if (name == family.gguf_name) {
      return family;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.gguf_name);
  }
  refuse_metadata(
      file, kKey,
      "names '" + name + "', which is not read from GGUF; known: " + known + "; use its Hugging Face directory");
}

// Keys that change what is computed and that no family here has: 0 stands for their absence.
void refuse_foreign(const Source& source) {
  for (const char* name : {"expert_count", "logit_scale", "residual_scale", "embedding_scale", "attention.scale",
                           "attention.clamp_kqv", "attention.max_alibi_bias"}) {
    if (const double value = source.decimal(name, 0.0); value != 0.0) {
      source.refuse(name, "is " + Json(value).dump() + ", which is not supported for this architecture");
    }
  }
  if (const std::int64_t parts = source.file.integer("split.count").value_or(1); parts > 1) {
    refuse_metadata(source.file, "split.count",
                    "is " + std::to_string(parts) + ": the file is one part of a model; join them to one file first");
  }
}

Json end_tokens(const GgufVocabulary& vocabulary) {
  const std::vector<std::int64_t>& ends = vocabulary.end_tokens;
  return ends.empty() ? Json(nullptr) : ends.size() == 1 ? Json(ends.front()) : Json(ends);
}

Json or_null(const std::optional<std::int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

Json gguf_config(const GgufFile& file) {
  const Family& family = find_family(file);
  const Source source{file, family.gguf_name};
  refuse_foreign(source);
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file);
  Json config = sizes(source, vocabulary);
  config["architectures"] = Json::array({family.architecture});
  config["model_type"] = family.model_type;
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = required_decimal(file, source.key("attention.layer_norm_rms_epsilon"));
  config["tie_word_embeddings"] = !source.has_tensor("output.weight");
  config["bos_token_id"] = or_null(vocabulary.bos);
  config["eos_token_id"] = or_null(vocabulary.eos);
  config["pad_token_id"] = or_null(vocabulary.padding);
  add_rope(source, &config);
  family.add(source, &config);
  return config;
}

Json gguf_generation_config(const GgufFile& file) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file);
  return {{"bos_token_id", or_null(vocabulary.bos)},
          {"eos_token_id", end_tokens(vocabulary)},
          {"pad_token_id", or_null(vocabulary.padding)}};
}

}  // namespace promptcached::checkpoint
