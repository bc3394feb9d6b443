// What a model takes, told from its configuration alone: parameters, and the arithmetic of a prompt. Nothing is loaded.
// No torch here.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/model_config.h"

namespace promptcached::model {

// As load_weights counts them: each tensor that is loaded, tied embeddings once.
struct ParameterCount {
  std::int64_t all = 0;
  // Of these, the weights that every token is multiplied with: all layers' projections, without biases and norms.
  std::int64_t layer_products = 0;
};

// Throws std::runtime_error when there are more than can be counted.
ParameterCount count_parameters(const ModelConfig& config);

// The number formats that "auto" stands for.
inline const char* automatic_weights(bool on_cuda) { return on_cuda ? "bf16" : "int8"; }
inline const char* automatic_kv_dtype(bool on_cuda) { return on_cuda ? "bf16" : "fp16"; }

// Bytes of one number: of "fp32", "bf16" or "fp16".
inline std::int32_t number_bytes(const std::string& format) { return format == "fp32" ? 4 : 2; }

// Memory that the weights take in a format: "fp32", "bf16", "fp16" or "int8". In the last one the table of embeddings
// is not counted: its rows are read from the file.
std::int64_t weight_bytes(const ModelConfig& config, const std::string& format);

// How long texts may get: the model's max_positions, or `max_model_len` where that is less; 0 stands for the former.
// Dynamic rope scaling alone goes beyond the former, if asked to. Throws std::runtime_error when it is negative.
std::int64_t usable_positions(const ModelConfig& config, std::int32_t max_model_len);

// Floating-point operations, a multiplication and an addition counted as two: 2 for each weight of a matrix product, 4
// * head_dim for each query head and token it sees (score and weighted value). Norms, activations, rotations and
// softmax are left out: they are thousandths. In double, which holds them all.
class FlopCount final {
 public:
  explicit FlopCount(const ModelConfig& config);

  // All layers for one token that sees `context` tokens, itself included; a sliding window shows it fewer.
  double token(std::int64_t context) const;
  // The logits of one token.
  double head() const;
  // A prompt's first token: the last `tokens - cached` of its tokens are computed, each seeing all before it, and the
  // logits of the last one. `cached` < `tokens`.
  double prompt(std::int64_t tokens, std::int64_t cached) const;

  // The same as Prompt Cache's authors count it (Gim et al., MLSys 2024): the attention of one layer alone, each token
  // against all of the prompt's, without its output projection. For multi-head attention of d = heads * head_dim that
  // is 6d^2 + 4nd a token, hence 6nd^2 + 4n^2d for a prompt of n; fewer KV heads make the first term smaller.
  double paper_token(std::int64_t tokens) const;

 private:
  double in_layers(std::int64_t tokens, std::int64_t cached) const;

  const ModelConfig& config_;  // outlives this
  double layer_products_;
};

}  // namespace promptcached::model
