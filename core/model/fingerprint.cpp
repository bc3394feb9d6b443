#include "core/model/fingerprint.h"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "core/base/sha256.h"
#include "core/model/architectures/architecture.h"
#include "core/model/parallel.h"

namespace promptcached::model {
namespace {

// Everything in the configuration that decides what a token's KV is.
class ConfigHash final {
 public:
  explicit ConfigHash(Sha256* hash) : hash_(hash) {}

  void add(const ModelConfig& config) {
    hash_->update_field("architecture", config.architecture->name);
    integers({config.hidden_size, config.intermediate_size, config.layers, config.heads, config.kv_heads,
              config.head_dim, config.rotated_dims, config.position_offset});
    integers({number(config.norm.kind), config.norm.has_bias, config.norm.adds_one, number(config.positions),
              config.qk_norm, config.qkv_bias, config.attention_out_bias, config.mlp_bias, config.parallel_block,
              config.mlp_norm, config.post_norms, number(config.activation), config.gated_mlp, config.embedding_norm});
    reals({config.norm.eps, config.score_scale, config.score_softcap, config.qkv_clip, config.embedding_scale});
    integers({number(config.alibi.kind), config.alibi.rounds_to_bf16});
    reals({config.alibi.max_bias, config.alibi.scale});
    for (const RopeConfig& rope : config.ropes) {
      add(rope);
    }
    if (config.depends_on_length()) {
      integers({config.text_length});
    }
    for (const LayerConfig& layer : config.layer_configs) {
      integers({layer.window, layer.rope});
    }
  }

 private:
  template <typename Enum>
  static std::int64_t number(Enum value) {
    return static_cast<std::int64_t>(value);
  }

  void add(const RopeConfig& rope) {
    integers({number(rope.kind), rope.original_max_positions, rope.truncate});
    reals({rope.theta, rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.beta_fast, rope.beta_slow,
           rope.attention_factor.value_or(0), rope.mscale.value_or(0), rope.mscale_all_dim.value_or(0)});
    reals(rope.short_factor);
    reals(rope.long_factor);
    reals(rope.divisors);
  }

  void integers(const std::vector<std::int64_t>& values) {
    hash_->update_field("integers", std::span<const std::int64_t>(values));
  }

  void reals(const std::vector<double>& values) {
    std::vector<std::int64_t> bits;
    for (const double value : values) {
      bits.push_back(std::bit_cast<std::int64_t>(value));
    }
    hash_->update_field("reals", std::span<const std::int64_t>(bits));
  }

  Sha256* hash_;
};

}  // namespace

std::string fingerprint(const ModelConfig& config, const checkpoint::StoredTensors& stored, const Compute& compute) {
  // Raised when the same weights would give other KV.
  constexpr std::int64_t kVersion = 2;
  // Tensors are hashed in pieces, so that all threads have work.
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20U;

  std::vector<std::span<const std::byte>> pieces;
  for (const auto& [name, tensor] : stored.all()) {
    for (std::size_t begin = 0; begin < tensor.bytes.size(); begin += kPieceBytes) {
      pieces.push_back(tensor.bytes.subspan(begin, std::min(kPieceBytes, tensor.bytes.size() - begin)));
    }
  }
  std::vector<Sha256::Digest> digests(pieces.size());
  for_each_task(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const auto piece = static_cast<std::size_t>(i);
    digests[piece] = Sha256().update_field("piece", pieces[piece]).digest();
  });

  Sha256 hash;
  hash.update_field("version", kVersion);
  ConfigHash(&hash).add(config);
  hash.update_field("weights_dtype", weights_name(compute));
  for (const auto& [name, tensor] : stored.all()) {
    hash.update_field("tensor", name).update_field("dtype", tensor.dtype);
    hash.update_field("shape", std::span<const std::int64_t>(tensor.shape));
  }
  hash.update_field("content", std::as_bytes(std::span(digests)));
  return to_hex(hash.digest());
}

}  // namespace promptcached::model
