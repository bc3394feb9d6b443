// ModelConfig: one decoder-only model, described by data. Everything that differs between families is a field here;
// each architecture fills them in from its own config.json (core/model/architectures), and one decoder computes them
// all. No torch here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/model_files.h"

namespace promptcached::model {

struct Architecture;

enum class NormKind { kRms, kLayer };

struct NormConfig {
  NormKind kind = NormKind::kRms;
  bool has_bias = false;
  bool adds_one = false;  // the factor is 1 + weight (Gemma)
  double eps = 1e-6;
};

enum class PositionKind {
  kRope,     // queries and keys are turned by their positions
  kLearned,  // a vector for each position is added to the embedding
  kAlibi,    // scores fall with the distance of positions
};

enum class RopeKind { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kDivided };

// How positions turn into rotation angles. Fields after `factor` belong to the kinds named.
struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                      // all but kDefault
  std::int64_t original_max_positions = 0;  // all but kDefault and kLinear
  double low_freq_factor = 1.0;             // kLlama3
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;  // kYarn
  double beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor{};  // kYarn, kLongRope; absent: computed
  std::optional<double> mscale{};            // kYarn
  std::optional<double> mscale_all_dim{};
  std::vector<double> short_factor{};  // kLongRope: one for each pair of dimensions
  std::vector<double> long_factor{};
  std::vector<double> divisors{};  // kDivided: of each pair's frequency, as GGUF files write out Llama 3's scaling

  // Its angles depend on how long a text may get, which is fixed when the model is loaded.
  bool depends_on_length() const { return kind == RopeKind::kDynamic || kind == RopeKind::kLongRope; }
};

// Slopes of ALiBi by query head, as Press et al. 2022 choose them.
struct AlibiConfig {
  enum class Kind { kBloom, kMpt };  // which heads get the extra slopes when their number is no power of two
  Kind kind = Kind::kBloom;
  double max_bias = 8.0;
  double scale = 1.0;           // of all slopes
  bool rounds_to_bf16 = false;  // of slopes, before scaling (Falcon)
};

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu };

struct LayerConfig {
  std::int64_t window = 0;  // a token sees those less than so many positions before it; 0: all
  std::int32_t rope = 0;    // index of ModelConfig::ropes
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
  std::int64_t text_length = 0;  // of the longest text to be served: set when the model is loaded, for ropes that ask

  NormConfig norm;

  PositionKind positions = PositionKind::kRope;
  std::vector<RopeConfig> ropes;           // kRope
  std::int64_t rotated_dims = 0;           // kRope: leading dimensions of a head; even
  std::int64_t position_offset = 0;        // kLearned: row of the table for position 0
  AlibiConfig alibi;                       // kAlibi
  std::vector<LayerConfig> layer_configs;  // [layers]

  double score_scale = 0;    // of products of queries and keys; 0: 1 / sqrt(head_dim)
  double score_softcap = 0;  // scores s become c * tanh(s / c); 0: none
  double logit_softcap = 0;  // the same for the logits
  double qkv_clip = 0;       // queries, keys and values are held within ±; 0: none
  bool qk_norm = false;      // queries and keys are normalised head by head, before rotation
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;

  bool parallel_block = false;  // attention and MLP read the same hidden state
  bool mlp_norm = true;         // the MLP's input has a norm of its own; false: attention's (parallel blocks only)
  bool post_norms = false;      // attention's and the MLP's results are normalised before they are added

  Activation activation = Activation::kSilu;
  bool gated_mlp = true;  // activation(gate) * up; false: activation(up)

  double embedding_scale = 1.0;
  bool embedding_norm = false;
  bool tied_embeddings = false;
  std::vector<std::int32_t> end_tokens;

  std::int64_t group() const { return heads / kv_heads; }  // query heads that share a KV head
  bool depends_on_length() const {
    return std::ranges::any_of(ropes, [](const RopeConfig& rope) { return rope.depends_on_length(); });
  }
};

// Reads config.json and, where there, generation_config.json. Throws std::runtime_error naming the file and
// the field at fault: a missing or mistyped field, an architecture, activation, rope type or quantisation that is not
// known.
ModelConfig read_model_config(const checkpoint::ModelFiles& files);

}  // namespace promptcached::model
