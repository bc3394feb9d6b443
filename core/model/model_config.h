// ModelConfig: config.json and generation_config.json of a Hugging Face directory, read and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/model/architectures.h"

namespace promptcached::model {

enum class RopeKind { kDefault, kLinear, kLlama3 };

// How positions turn into rotation angles.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                      // kLinear, kLlama3
  double low_freq_factor = 1.0;             // kLlama3
  double high_freq_factor = 4.0;            // kLlama3
  std::int64_t original_max_positions = 0;  // kLlama3
};

struct ModelConfig {
  const Architecture* architecture = nullptr;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  std::int64_t sliding_window = 0;  // 0: none
  double norm_eps = 1e-6;
  RopeConfig rope;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied_embeddings = false;
  std::vector<std::int32_t> end_tokens;

  std::int64_t group() const { return heads / kv_heads; }  // query heads that share a KV head
};

// Reads `directory`/config.json. Throws std::runtime_error naming the file and the field at fault: a missing or
// mistyped field, an architecture, activation, rope type or quantisation that is not known.
ModelConfig read_model_config(const std::filesystem::path& directory);

}  // namespace promptcached::model
