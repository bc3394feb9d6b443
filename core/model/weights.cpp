#include "core/model/weights.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/checkpoint/gguf_quants.h"
#include "core/model/architectures/architecture.h"
#include "core/model/aten.h"
#include "core/model/parallel.h"

namespace promptcached::model {
namespace {

using checkpoint::StoredTensor;
using checkpoint::StoredTensors;

// The format of a stored tensor's numbers once they stand alone: quantised ones are expanded to fp32.
std::optional<at::ScalarType> tensor_dtype(const std::string& stored) {
  if (stored == "F32" || checkpoint::is_quantized(stored)) {
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
  Loader(const ModelConfig& config, const StoredTensors& stored, const Compute& compute,
         const std::function<void(const std::string&)>& log)
      : config_(config),
        stored_(stored),
        compute_(compute),
        names_(stored.naming() == checkpoint::TensorNaming::kGguf ? gguf_names(config)
                                                                  : config.architecture->weight_names(config)),
        prefix_(find_prefix()),
        log_(log) {}

  ModelWeights load() {
    ModelWeights weights;
    const std::int64_t hidden = config_.hidden_size;
    const StoredTensor& embedding = require(global(names_.embedding) + ".weight", {config_.vocab_size, hidden});
    weights.embedding = load_embedding(embedding);
    if (config_.positions == PositionKind::kLearned) {
      weights.positions =
          take(global(names_.positions) + ".weight", {config_.max_positions + config_.position_offset, hidden});
    }
    if (config_.embedding_norm) {
      weights.embedding_norm = take_norm(global(names_.embedding_norm), hidden);
    }
    for (layer_ = 0; layer_ < config_.layers; ++layer_) {
      weights.layers.push_back(load_layer());
    }
    weights.final_norm = take_norm(global(names_.final_norm), hidden);
    // A tied model's file may hold a stray head; transformers ignore it, and so do we.
    weights.head = load_head(weights.embedding);
    weights.parameters = parameters_;
    return weights;
  }

 private:
  struct Part {
    std::string_view name;
    std::int64_t out;
  };

  // Projections as one matrix, and the tensors it was made from.
  struct Fused {
    at::Tensor weight;
    at::Tensor bias;
    std::vector<std::string> names{};
  };

  std::string find_prefix() const {
    const bool is_bare = stored_.find(std::string(names_.embedding) + ".weight") != nullptr;
    return is_bare ? std::string() : std::string(names_.prefix);
  }

  std::string global(std::string_view name) const { return prefix_ + std::string(name); }

  std::string in_layer(std::string_view name) const {
    std::string layer(names_.layer);
    layer.replace(layer.find('#'), 1, std::to_string(layer_));
    return prefix_ + layer + std::string(name);
  }

  // On the CPU rows are read where the file is mapped.
  Embedding load_embedding(const StoredTensor& stored) const {
    Embedding embedding{.table = {}, .stored = stored};
    if (!compute_.device.is_cpu()) {
      embedding.table = to_tensor(stored);
    }
    return embedding;
  }

  Linear load_head(const Embedding& embedding) {
    if (config_.tied_embeddings) {
      return finish(
          {embedding.table.defined() ? embedding.table : to_tensor(embedding.stored), {}, {embedding.stored.name}});
    }
    const std::string name = std::string(names_.head) + ".weight";
    return finish({take(name, {config_.vocab_size, config_.hidden_size}), {}, {name}});
  }

  // Rounds a matrix where that is wanted.
  Linear finish(Fused fused) const {
    Linear linear = dense_linear(std::move(fused.weight), std::move(fused.bias));
    if (compute_.int8_weights) {
      pack(&linear);
      for (const std::string& name : fused.names) {
        const StoredTensor* stored = stored_.find(name);
        stored->file->release(stored->bytes);
      }
    }
    return linear;
  }

  LayerWeights load_layer() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t inner = config_.intermediate_size;
    LayerWeights layer;
    layer.attention_norm = take_norm(in_layer(names_.attention_norm), hidden);
    layer.qkv = load_qkv();
    if (config_.qk_norm) {
      layer.q_norm = take_norm_weight(in_layer(names_.q_norm), config_.head_dim);
      layer.k_norm = take_norm_weight(in_layer(names_.k_norm), config_.head_dim);
    }
    layer.attention_out =
        fuse({{names_.attention_out, hidden}}, config_.heads * config_.head_dim, config_.attention_out_bias);
    if (config_.mlp_norm) {
      layer.mlp_norm = take_norm(in_layer(names_.mlp_norm), hidden);
    }
    if (config_.post_norms) {
      layer.post_attention_norm = take_norm(in_layer(names_.post_attention_norm), hidden);
      layer.post_mlp_norm = take_norm(in_layer(names_.post_mlp_norm), hidden);
    }
    if (!names_.gate_up.empty()) {
      layer.up = fuse({{names_.gate_up, 2 * inner}}, hidden, config_.mlp_bias);
    } else if (config_.gated_mlp) {
      layer.up = fuse({{names_.gate, inner}, {names_.up, inner}}, hidden, config_.mlp_bias);
    } else {
      layer.up = fuse({{names_.up, inner}}, hidden, config_.mlp_bias);
    }
    layer.down = fuse({{names_.down, hidden}}, inner, config_.mlp_bias);
    return layer;
  }

  Linear load_qkv() {
    const std::int64_t query = config_.heads * config_.head_dim;
    const std::int64_t key = config_.kv_heads * config_.head_dim;
    if (names_.qkv_layout == QkvLayout::kSeparate) {
      Fused separate =
          join({{names_.q, query}, {names_.k, key}, {names_.v, key}}, config_.hidden_size, config_.qkv_bias);
      if (names_.rotated_pairs_adjoin) {
        part_pairs(separate.weight.narrow(0, 0, query + key));
        if (separate.bias.defined()) {
          part_pairs(separate.bias.narrow(0, 0, query + key));
        }
      }
      return finish(std::move(separate));
    }
    Fused fused = join({{names_.qkv, query + 2 * key}}, config_.hidden_size, config_.qkv_bias);
    if (names_.qkv_layout == QkvLayout::kGrouped) {
      fused.weight = ungroup(fused.weight);
      fused.bias = fused.bias.defined() ? ungroup(fused.bias) : fused.bias;
    }
    return finish(std::move(fused));
  }

  // Rotation turns row i of a head together with row i + head_dim / 2; where the file has the two side by side, they
  // are put in their places. In place.
  void part_pairs(const at::Tensor& rows) const {
    const std::int64_t heads = rows.size(0) / config_.head_dim;
    const at::Tensor pairs = rows.view({heads, config_.head_dim / 2, 2, -1});
    rows.copy_(pairs.transpose(1, 2).contiguous().view(rows.sizes()));
  }

  // From each KV head's query heads, key and value to all query heads, all keys, all values.
  at::Tensor ungroup(const at::Tensor& grouped) const {
    const std::int64_t group = config_.group();
    std::vector<std::int64_t> by_head = {config_.kv_heads, group + 2, config_.head_dim};
    std::vector<std::int64_t> flat = {-1};
    if (grouped.dim() == 2) {
      by_head.push_back(grouped.size(1));
      flat.push_back(grouped.size(1));
    }
    const at::Tensor heads = grouped.view(by_head);
    return at::cat({heads.narrow(1, 0, group).reshape(flat), heads.select(1, group).reshape(flat),
                    heads.select(1, group + 1).reshape(flat)});
  }

  Norm take_norm(const std::string& name, std::int64_t size) {
    Norm norm;
    norm.weight = take_norm_weight(name, size);
    if (config_.norm.has_bias) {
      norm.bias = take(name + ".bias", {size});
    }
    return norm;
  }

  at::Tensor take_norm_weight(const std::string& name, std::int64_t size) {
    const at::Tensor weight = take(name + ".weight", {size});
    return config_.norm.adds_one && !names_.norms_hold_one ? weight.to(at::kFloat) + 1.0 : weight;
  }

  Linear fuse(const std::vector<Part>& parts, std::int64_t in, bool has_bias) {
    return finish(join(parts, in, has_bias));
  }

  // Several projections of the same input as one.
  Fused join(const std::vector<Part>& parts, std::int64_t in, bool has_bias) {
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> weights;
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> biases;
    for (const Part& part : parts) {
      const std::string name = in_layer(part.name);
      weights.push_back({name + ".weight", names_.transposed ? std::vector<std::int64_t>{in, part.out}
                                                             : std::vector<std::int64_t>{part.out, in}});
      biases.push_back({name + ".bias", {part.out}});
    }
    Fused fused;
    for (const auto& [name, shape] : weights) {
      fused.names.push_back(name);
    }
    fused.weight =
        names_.transposed ? take(weights.front().first, weights.front().second).t().contiguous() : concatenate(weights);
    if (has_bias) {
      fused.bias = concatenate(biases);
    }
    return fused;
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

  at::Tensor take(const std::string& name, at::IntArrayRef shape) { return to_tensor(require(name, shape)); }

  // One tensor on the device, in the weights' format: where it is mapped if that will do.
  at::Tensor to_tensor(const StoredTensor& stored) const {
    const at::ScalarType dtype = *tensor_dtype(stored.dtype);
    const bool aligned = reinterpret_cast<std::uintptr_t>(stored.bytes.data()) % c10::elementSize(dtype) == 0;
    if (compute_.device.is_cpu() && dtype == compute_.weights && aligned && !checkpoint::is_quantized(stored.dtype)) {
      // Never written to: the pages are mapped read-only. The deleter keeps the mapping alive.
      return at::from_blob(
          const_cast<std::byte*>(stored.bytes.data()), stored.shape, [file = stored.file](void*) {}, at::dtype(dtype));
    }
    at::Tensor tensor = at::empty(stored.shape, options());
    copy(stored, tensor);
    return tensor;
  }

  static void copy(const StoredTensor& stored, const at::Tensor& target) {
    target.copy_(checkpoint::is_quantized(stored.dtype) ? expand(stored) : numbers_of(stored));
    stored.file->release(stored.bytes);
  }

  static at::Tensor numbers_of(const StoredTensor& stored) {
    const at::ScalarType dtype = *tensor_dtype(stored.dtype);
    if (reinterpret_cast<std::uintptr_t>(stored.bytes.data()) % c10::elementSize(dtype) == 0) {
      return at::from_blob(const_cast<std::byte*>(stored.bytes.data()), stored.shape, at::dtype(dtype));
    }
    at::Tensor numbers = at::empty(stored.shape, at::dtype(dtype));
    std::memcpy(numbers.data_ptr(), stored.bytes.data(), stored.bytes.size());
    return numbers;
  }

  // Row by row, on all threads.
  static at::Tensor expand(const StoredTensor& stored) {
    at::Tensor numbers = at::empty(stored.shape, at::kFloat);
    const std::int64_t row = stored.shape.back();
    const std::int64_t rows = row == 0 ? 0 : numbers.numel() / row;
    auto* out = numbers.data_ptr<float>();
    for_each_run(rows, /*step=*/64, [&](std::int64_t begin, std::int64_t end) {
      checkpoint::dequantize(stored, begin * row, (end - begin) * row, out + begin * row);
    });
    return numbers;
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
                               tensor->dtype + "; known: F32, BF16, F16, and GGUF's quantised ones");
    }
    parameters_ += c10::multiply_integers(shape);
    report_progress(tensor->bytes.size());
    return *tensor;
  }

  // A line now and then, for models that take long.
  void report_progress(std::size_t bytes) {
    constexpr std::chrono::seconds kInterval{2};
    read_bytes_ += bytes;
    const auto now = std::chrono::steady_clock::now();
    if (log_ && now - reported_ >= kInterval) {
      reported_ = now;
      log_("loading the weights: " + std::to_string(100 * read_bytes_ / std::max<std::size_t>(1, stored_.bytes())) +
           " % of " + std::to_string(stored_.bytes() >> 20U) + " MiB");
    }
  }

  at::TensorOptions options() const { return at::TensorOptions().dtype(compute_.weights).device(compute_.device); }

  const ModelConfig& config_;
  const StoredTensors& stored_;
  const Compute& compute_;
  WeightNames names_;
  std::string prefix_;
  std::int64_t layer_ = 0;
  std::int64_t parameters_ = 0;
  const std::function<void(const std::string&)>& log_;
  std::size_t read_bytes_ = 0;
  std::chrono::steady_clock::time_point reported_ = std::chrono::steady_clock::now();
};

}  // namespace

ModelWeights load_weights(const ModelConfig& config, const checkpoint::StoredTensors& stored, const Compute& compute,
                          const std::function<void(const std::string&)>& log) {
  return Loader(config, stored, compute, log).load();
}

}  // namespace promptcached::model
