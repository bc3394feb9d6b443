#include "tests/parity/direct_pass.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

namespace promptcached::parity {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

Json read_json(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) {
    throw std::runtime_error("direct pass: cannot open " + path.string());
  }
  return Json::parse(stream);
}

void read_tensors(const std::filesystem::path& path, Tensors* tensors) {
  std::ifstream stream(path, std::ios::binary);
  std::uint64_t header_bytes = 0;
  if (!stream.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes)) {
    throw std::runtime_error("direct pass: cannot read " + path.string());
  }
  std::string header(header_bytes, ' ');
  stream.read(header.data(), static_cast<std::streamsize>(header_bytes));
  static const std::map<std::string, at::ScalarType> kDtypes = {
      {"F32", at::kFloat}, {"BF16", at::kBFloat16}, {"F16", at::kHalf}};
  const Json entries = Json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__" || !kDtypes.contains(entry["dtype"].get<std::string>())) {
      continue;
    }
    const auto shape = entry["shape"].get<std::vector<std::int64_t>>();
    at::Tensor tensor = at::empty(shape, kDtypes.at(entry["dtype"].get<std::string>()));
    stream.seekg(static_cast<std::streamoff>(8 + header_bytes + entry["data_offsets"][0].get<std::uint64_t>()));
    stream.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
    if (!stream) {
      throw std::runtime_error("direct pass: cannot read '" + name + "' of " + path.string());
    }
    (*tensors)[name] = tensor.to(at::kFloat);
  }
}

Tensors read_all_tensors(const std::filesystem::path& directory) {
  Tensors tensors;
  const std::filesystem::path index = directory / "model.safetensors.index.json";
  if (std::filesystem::exists(index)) {
    std::set<std::string> files;
    const Json weight_map = read_json(index)["weight_map"];
    for (const auto& file : weight_map) {
      files.insert(file.get<std::string>());
    }
    for (const std::string& file : files) {
      read_tensors(directory / file, &tensors);
    }
  } else {
    read_tensors(directory / "model.safetensors", &tensors);
  }
  return tensors;
}

// Radians a step of one position turns each pair by: [head_dim / 2].
at::Tensor rope_frequencies(const Json& config, std::int64_t head_dim) {
  Json rope = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key) && config[key].is_object()) {
      rope.update(config[key]);
    }
  }
  const double theta = rope.value("rope_theta", config.value("rope_theta", 10000.0));
  const std::string type = rope.value("rope_type", rope.value("type", std::string("default")));
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (type == "linear") {
      frequency /= rope["factor"].get<double>();
    } else if (type == "llama3") {
      const double factor = rope["factor"];
      const double low = rope["low_freq_factor"];
      const double high = rope["high_freq_factor"];
      const double turns = rope["original_max_position_embeddings"].get<double>() * frequency / (2 * M_PI);
      const double kept = std::min(1.0, std::max(0.0, (turns - low) / (high - low)));
      frequency = kept * frequency + (1 - kept) * frequency / factor;
    } else if (type != "default") {
      throw std::runtime_error("direct pass: rope type " + type);
    }
    frequencies.push_back(frequency);
  }
  return at::tensor(frequencies, at::kDouble);
}

// x * cos + rotate_half(x) * sin
at::Tensor rotate(const at::Tensor& x,       // [heads, n, head_dim]
                  const at::Tensor& angles)  // [n, head_dim]
{
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor rotated = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * angles.cos().to(at::kFloat) + rotated * angles.sin().to(at::kFloat);
}

}  // namespace

struct DirectPass::Model {
  Json config;
  Tensors tensors;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double eps = 0;

  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const auto bias = tensors.find(name + ".bias");
    return at::linear(x, tensors.at(name + ".weight"), bias == tensors.end() ? at::Tensor() : bias->second);
  }

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return x / (x * x).mean(-1, true).add(eps).sqrt() * tensors.at(name + ".weight");
  }

  // [n, heads * head_dim] -> [heads, n, head_dim], KV heads repeated for their group
  at::Tensor by_head(const at::Tensor& x, std::int64_t count) const {
    return x.view({x.size(0), count, head_dim}).transpose(0, 1).repeat_interleave(heads / count, 0);
  }

  at::Tensor attention(const std::string& prefix, const at::Tensor& x, const at::Tensor& angles,
                       const at::Tensor& mask) const {
    const at::Tensor q = rotate(by_head(linear(prefix + "q_proj", x), heads), angles);
    const at::Tensor k = rotate(by_head(linear(prefix + "k_proj", x), kv_heads), angles);
    const at::Tensor v = by_head(linear(prefix + "v_proj", x), kv_heads);
    const at::Tensor scores = at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(head_dim));
    const at::Tensor weights = at::softmax(
        scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity()), -1);  // [heads, n, n]
    const at::Tensor out = at::matmul(weights, v).transpose(0, 1).reshape({x.size(0), heads * head_dim});
    return linear(prefix + "o_proj", out);
  }

  at::Tensor mlp(const std::string& prefix, const at::Tensor& x) const {
    return linear(prefix + "down_proj", at::silu(linear(prefix + "gate_proj", x)) * linear(prefix + "up_proj", x));
  }
};

std::vector<std::uint8_t> causal_mask(std::int32_t n) {
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 0);
  for (std::int32_t row = 0; row < n; ++row) {
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(row) * n, row + 1, std::uint8_t{1});
  }
  return mask;
}

DirectPass::DirectPass(const std::filesystem::path& directory) : model_(std::make_unique<Model>()) {
  const c10::InferenceMode inference;
  const Json config = read_json(directory / "config.json");
  const auto integer = [&](const char* key, std::int64_t fallback) {
    return config.contains(key) && !config[key].is_null() ? config[key].get<std::int64_t>() : fallback;
  };
  model_->config = config;
  model_->heads = config["num_attention_heads"];
  model_->kv_heads = integer("num_key_value_heads", model_->heads);
  model_->head_dim = integer("head_dim", config["hidden_size"].get<std::int64_t>() / model_->heads);
  model_->eps = config.value("rms_norm_eps", 1e-6);
  model_->tensors = read_all_tensors(directory);
}

DirectPass::~DirectPass() = default;

std::int32_t DirectPass::vocab_size() const { return model_->config["vocab_size"]; }

std::vector<float> DirectPass::logits(const DirectInput& input) const {
  const c10::InferenceMode inference;
  const Model& model = *model_;
  const auto n = static_cast<std::int64_t>(input.tokens.size());
  const at::Tensor mask = at::tensor(at::ArrayRef<std::uint8_t>(input.mask), at::kByte).to(at::kBool).view({n, n});
  const at::Tensor turns =
      at::tensor(input.positions, at::kDouble).unsqueeze(1) * rope_frequencies(model.config, model.head_dim);
  const at::Tensor angles = at::cat({turns, turns}, -1);  // [n, head_dim]
  const at::Tensor& embedding = model.tensors.at("model.embed_tokens.weight");
  at::Tensor hidden = embedding.index_select(0, at::tensor(input.tokens, at::kInt));
  for (std::int64_t layer = 0; layer < model.config["num_hidden_layers"].get<std::int64_t>(); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    hidden =
        hidden + model.attention(prefix + "self_attn.", model.norm(prefix + "input_layernorm", hidden), angles, mask);
    hidden = hidden + model.mlp(prefix + "mlp.", model.norm(prefix + "post_attention_layernorm", hidden));
  }
  if (!input.rows.empty()) {
    hidden = hidden.index_select(0, at::tensor(input.rows, at::kInt));
  }
  const bool tied = model.config.value("tie_word_embeddings", false);
  const at::Tensor logits =
      at::linear(model.norm("model.norm", hidden), tied ? embedding : model.tensors.at("lm_head.weight")).contiguous();
  return {logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel()};
}

}  // namespace promptcached::parity
