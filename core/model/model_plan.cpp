#include "core/model/model_plan.h"

#include <algorithm>
#include <stdexcept>

#include "core/kernels/int8_linear.h"

namespace promptcached::model {
namespace {

// Sizes as doubles: exact up to 2^53, and no product of config.json's numbers is too large to be compared with that.
struct Sizes {
  explicit Sizes(const ModelConfig& config)
      : hidden(static_cast<double>(config.hidden_size)),
        inner(static_cast<double>(config.intermediate_size)),
        query(static_cast<double>(config.heads) * static_cast<double>(config.head_dim)),
        key(static_cast<double>(config.kv_heads) * static_cast<double>(config.head_dim)),
        head_dim(static_cast<double>(config.head_dim)),
        vocabulary(static_cast<double>(config.vocab_size)),
        layers(static_cast<double>(config.layers)) {}

  double hidden;
  double inner;
  double query;  // of all query heads together
  double key;    // of all KV heads together
  double head_dim;
  double vocabulary;
  double layers;
};

double qkv_rows(const Sizes& sizes) { return sizes.query + 2 * sizes.key; }

// Gated MLPs have two projections up.
double up_rows(const ModelConfig& config, const Sizes& sizes) { return (config.gated_mlp ? 2 : 1) * sizes.inner; }

double norm_parameters(const ModelConfig& config, const Sizes& sizes) {
  return (config.norm.has_bias ? 2 : 1) * sizes.hidden;
}

// One layer's matrices.
double product_parameters(const ModelConfig& config, const Sizes& sizes) {
  const double attention = qkv_rows(sizes) * sizes.hidden + sizes.hidden * sizes.query;
  const double mlp = up_rows(config, sizes) * sizes.hidden + sizes.hidden * sizes.inner;
  return attention + mlp;
}

// What else one layer has: biases and norms.
double vector_parameters(const ModelConfig& config, const Sizes& sizes) {
  double count = 0;
  if (config.qkv_bias) {
    count += qkv_rows(sizes);
  }
  if (config.attention_out_bias) {
    count += sizes.hidden;
  }
  if (config.mlp_bias) {
    count += up_rows(config, sizes) + sizes.hidden;
  }
  if (config.qk_norm) {
    count += 2 * sizes.head_dim;
  }
  const int norms = 1 + (config.mlp_norm ? 1 : 0) + (config.post_norms ? 2 : 0);
  return count + norms * norm_parameters(config, sizes);
}

// What stands outside the layers.
double outer_parameters(const ModelConfig& config, const Sizes& sizes) {
  const double embedding = sizes.vocabulary * sizes.hidden;
  double count = embedding + norm_parameters(config, sizes);
  if (!config.tied_embeddings) {
    count += embedding;
  }
  if (config.positions == PositionKind::kLearned) {
    count += static_cast<double>(config.max_positions + config.position_offset) * sizes.hidden;
  }
  if (config.embedding_norm) {
    count += norm_parameters(config, sizes);
  }
  return count;
}

// How many tokens those at the positions `first` to `last` see together, one seeing itself and all before it, at most
// `window` of them (0: all).
double seen(std::int64_t first, std::int64_t last, std::int64_t window) {
  const auto to = [window](std::int64_t tokens) {
    const std::int64_t growing = window > 0 ? std::min(tokens, window) : tokens;
    return static_cast<double>(growing) * static_cast<double>(growing + 1) / 2 +
           static_cast<double>(tokens - growing) * static_cast<double>(window);
  };
  return to(last + 1) - to(first);
}

}  // namespace

ParameterCount count_parameters(const ModelConfig& config) {
  const Sizes sizes(config);
  const double products = sizes.layers * product_parameters(config, sizes);
  const double all = products + sizes.layers * vector_parameters(config, sizes) + outer_parameters(config, sizes);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (all > kExact) {
    throw std::runtime_error("config.json describes a model of more parameters than can be counted");
  }
  return {.all = static_cast<std::int64_t>(all), .layer_products = static_cast<std::int64_t>(products)};
}

std::int64_t weight_bytes(const ModelConfig& config, const std::string& format) {
  const ParameterCount count = count_parameters(config);
  if (format != "int8") {
    return count.all * number_bytes(format);
  }
  const std::int64_t embedding = config.vocab_size * config.hidden_size;
  const std::int64_t matrices = count.layer_products + embedding;  // and the head
  const std::int64_t others = count.all - count.layer_products - (config.tied_embeddings ? 1 : 2) * embedding;
  return matrices * kernels::kGroupBytes / kernels::kGroupWeights + others * number_bytes("fp32");
}

std::int64_t usable_positions(const ModelConfig& config, std::int32_t max_model_len) {
  if (max_model_len < 0) {
    throw std::runtime_error("--max-model-len must not be negative");
  }
  if (max_model_len == 0) {
    return config.max_positions;
  }
  double longest = static_cast<double>(config.max_positions);
  for (const RopeConfig& rope : config.ropes) {
    if (rope.kind == RopeKind::kDynamic) {
      longest *= rope.factor;
    }
  }
  return std::min<std::int64_t>(static_cast<std::int64_t>(longest), max_model_len);
}

FlopCount::FlopCount(const ModelConfig& config)
    : config_(config), layer_products_(static_cast<double>(count_parameters(config).layer_products)) {}

double FlopCount::token(std::int64_t context) const { return in_layers(context, context - 1); }

double FlopCount::head() const {
  const Sizes sizes(config_);
  return 2 * sizes.vocabulary * sizes.hidden;
}

double FlopCount::prompt(std::int64_t tokens, std::int64_t cached) const { return in_layers(tokens, cached) + head(); }

double FlopCount::in_layers(std::int64_t tokens, std::int64_t cached) const {
  double pairs = 0;  // of a computed token and one that it sees
  for (const LayerConfig& layer : config_.layer_configs) {
    pairs += seen(cached, tokens - 1, layer.window);
  }
  return static_cast<double>(tokens - cached) * 2 * layer_products_ + pairs * 4 * Sizes(config_).query;
}

double FlopCount::paper_token(std::int64_t tokens) const {
  const Sizes sizes(config_);
  return 2 * qkv_rows(sizes) * sizes.hidden + 4 * static_cast<double>(tokens) * sizes.query;
}

}  // namespace promptcached::model
