#include "core/model/weights.h"

#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/base/sha256.h"
#include "core/model/aten.h"

namespace promptcached::model {
namespace {

std::optional<at::ScalarType> tensor_dtype(const std::string& stored) {
  if (stored == "F32") {
    return at::kFloat;
  }
  if (stored == "BF16") {
    return at::kBFloat16;
  }
  if (stored == "F16") {
    return at::kHalf;
  }
  return std::nullopt;
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

class Loader final {
 public:
  Loader(const ModelConfig& config, const StoredTensors& stored, const Compute& compute)
      : config_(config), stored_(stored), compute_(compute) {}

  ModelWeights load() {
    ModelWeights weights;
    const std::int64_t hidden = config_.hidden_size;
    weights.embedding = take("model.embed_tokens.weight", {config_.vocab_size, hidden});
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      weights.layers.push_back(load_layer("model.layers." + std::to_string(layer) + "."));
    }
    weights.final_norm = take("model.norm.weight", {hidden});
    // A tied model's file may hold a stray lm_head; transformers ignore it, and so do we.
    weights.head.weight =
        config_.tied_embeddings ? weights.embedding : take("lm_head.weight", {config_.vocab_size, hidden});
    weights.parameters = parameters_;
    weights.bytes = parameters_ * static_cast<std::int64_t>(c10::elementSize(compute_.weights));
    return weights;
  }

 private:
  struct Part {
    const char* name;
    std::int64_t out;
  };

  LayerWeights load_layer(const std::string& prefix) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t query = config_.heads * config_.head_dim;
    const std::int64_t key = config_.kv_heads * config_.head_dim;
    const std::int64_t inner = config_.intermediate_size;
    LayerWeights layer;
    layer.attention_norm = take(prefix + "input_layernorm.weight", {hidden});
    layer.qkv = fuse(prefix + "self_attn.", {{"q_proj", query}, {"k_proj", key}, {"v_proj", key}}, hidden,
                     config_.attention_bias);
    layer.attention_out = fuse(prefix + "self_attn.", {{"o_proj", hidden}}, query, config_.attention_bias);
    layer.mlp_norm = take(prefix + "post_attention_layernorm.weight", {hidden});
    layer.gate_up = fuse(prefix + "mlp.", {{"gate_proj", inner}, {"up_proj", inner}}, hidden, config_.mlp_bias);
    layer.down = fuse(prefix + "mlp.", {{"down_proj", hidden}}, inner, config_.mlp_bias);
    return layer;
  }

  // Several projections of the same input as one.
  Linear fuse(const std::string& prefix, const std::vector<Part>& parts, std::int64_t in, bool has_bias) {
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> weights;
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> biases;
    for (const Part& part : parts) {
      weights.push_back({prefix + part.name + ".weight", {part.out, in}});
      biases.push_back({prefix + part.name + ".bias", {part.out}});
    }
    Linear linear;
    linear.weight = concatenate(weights);
    if (has_bias) {
      linear.bias = concatenate(biases);
    }
    return linear;
  }

  // The tensors one after another along their first dimension, as one.
  at::Tensor concatenate(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& parts) {
    if (parts.size() == 1) {
      return take(parts.front().first, parts.front().second);
    }
    std::vector<std::int64_t> shape = parts.front().second;
    shape[0] = 0;
    for (const auto& [name, part_shape] : parts) {
      shape[0] += part_shape[0];
    }
    at::Tensor whole = at::empty(shape, options());
    std::int64_t row = 0;
    for (const auto& [name, part_shape] : parts) {
      copy(require(name, part_shape), whole.narrow(0, row, part_shape[0]));
      row += part_shape[0];
    }
    return whole;
  }

  // One tensor on the device, in the weights' format: where it is mapped if that will do.
  at::Tensor take(const std::string& name, at::IntArrayRef shape) {
    const StoredTensor& stored = require(name, shape);
    const at::ScalarType dtype = *tensor_dtype(stored.dtype);
    const bool aligned = reinterpret_cast<std::uintptr_t>(stored.bytes.data()) % c10::elementSize(dtype) == 0;
    if (compute_.device.is_cpu() && dtype == compute_.weights && aligned) {
      // Never written to: the pages are mapped read-only. The deleter keeps the mapping alive.
      return at::from_blob(
          const_cast<std::byte*>(stored.bytes.data()), shape, [file = stored.file](void*) {}, at::dtype(dtype));
    }
    at::Tensor tensor = at::empty(shape, options());
    copy(stored, tensor);
    return tensor;
  }

  static void copy(const StoredTensor& stored, const at::Tensor& target) {
    const at::ScalarType dtype = *tensor_dtype(stored.dtype);
    const auto address = reinterpret_cast<std::uintptr_t>(stored.bytes.data());
    at::Tensor source;
    if (address % c10::elementSize(dtype) == 0) {
      source = at::from_blob(const_cast<std::byte*>(stored.bytes.data()), stored.shape, at::dtype(dtype));
    } else {
      source = at::empty(stored.shape, at::dtype(dtype));
      std::memcpy(source.data_ptr(), stored.bytes.data(), stored.bytes.size());
    }
    target.copy_(source);
    stored.file->release(stored.bytes);
  }

  const StoredTensor& require(const std::string& name, at::IntArrayRef shape) {
    const StoredTensor* tensor = stored_.find(name);
    if (tensor == nullptr) {
      throw std::runtime_error(stored_.source().string() + ": tensor '" + name + "' is missing");
    }
    if (at::IntArrayRef(tensor->shape) != shape) {
      throw std::runtime_error(stored_.source().string() + ": tensor '" + name + "' has shape " +
                               shape_text(tensor->shape) + ", but config.json asks for " + shape_text(shape));
    }
    if (!tensor_dtype(tensor->dtype)) {
      throw std::runtime_error(stored_.source().string() + ": tensor '" + name + "' has the number format " +
                               tensor->dtype + "; known: F32, BF16, F16");
    }
    parameters_ += c10::multiply_integers(shape);
    return *tensor;
  }

  at::TensorOptions options() const { return at::TensorOptions().dtype(compute_.weights).device(compute_.device); }

  const ModelConfig& config_;
  const StoredTensors& stored_;
  const Compute& compute_;
  std::int64_t parameters_ = 0;
};

void hash_config(const ModelConfig& config, Sha256* hash) {
  const auto real = [&](const char* tag, double value) {
    std::int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash->update_field(tag, bits);
  };
  hash->update_field("architecture", config.architecture->name);
  hash->update_field("hidden_size", config.hidden_size);
  hash->update_field("intermediate_size", config.intermediate_size);
  hash->update_field("layers", config.layers);
  hash->update_field("heads", config.heads);
  hash->update_field("kv_heads", config.kv_heads);
  hash->update_field("head_dim", config.head_dim);
  real("norm_eps", config.norm_eps);
  hash->update_field("rope", static_cast<std::int64_t>(config.rope.kind));
  real("rope_theta", config.rope.theta);
  real("rope_factor", config.rope.factor);
  real("rope_low_freq_factor", config.rope.low_freq_factor);
  real("rope_high_freq_factor", config.rope.high_freq_factor);
  hash->update_field("rope_original_max_positions", config.rope.original_max_positions);
  hash->update_field("attention_bias", static_cast<std::int64_t>(config.attention_bias));
  hash->update_field("mlp_bias", static_cast<std::int64_t>(config.mlp_bias));
  hash->update_field("tied_embeddings", static_cast<std::int64_t>(config.tied_embeddings));
}

}  // namespace

ModelWeights load_weights(const ModelConfig& config, const StoredTensors& stored, const Compute& compute) {
  return Loader(config, stored, compute).load();
}

std::string fingerprint(const ModelConfig& config, const StoredTensors& stored, const Compute& compute) {
  // Raised when the same weights would give other KV.
  constexpr std::int64_t kVersion = 1;
  // Tensors are hashed in pieces, so that all threads have work.
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20U;

  std::vector<std::span<const std::byte>> pieces;
  for (const auto& [name, tensor] : stored.all()) {
    for (std::size_t begin = 0; begin < tensor.bytes.size(); begin += kPieceBytes) {
      pieces.push_back(tensor.bytes.subspan(begin, std::min(kPieceBytes, tensor.bytes.size() - begin)));
    }
  }
  std::vector<Sha256::Digest> digests(pieces.size());
  at::parallel_for(0, static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      digests[i] = Sha256().update_field("piece", pieces[i]).digest();
    }
  });

  Sha256 hash;
  hash.update_field("version", kVersion);
  hash_config(config, &hash);
  hash.update_field("weights_dtype", dtype_name(compute.weights));
  for (const auto& [name, tensor] : stored.all()) {
    hash.update_field("tensor", name).update_field("dtype", tensor.dtype);
    hash.update_field("shape", std::span<const std::int64_t>(tensor.shape));
  }
  hash.update_field("content", std::as_bytes(std::span(digests)));
  return to_hex(hash.digest());
}

}  // namespace promptcached::model
