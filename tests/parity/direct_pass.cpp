#include "tests/parity/direct_pass.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
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

// The first of `keys` that is there and not null, else `fallback`.
template <typename Value>
Value value_of(const Json& object, const std::vector<std::string>& keys, Value fallback) {
  for (const std::string& key : keys) {
    if (object.contains(key) && !object[key].is_null()) {
      return object[key].get<Value>();
    }
  }
  return fallback;
}

// Angles' frequencies, and what their cosines and sines are multiplied by.
struct Turns {
  at::Tensor frequencies;  // [rotated / 2] fp64
  double factor = 1.0;
};

Turns turns_of(const Json& config, const Json& rope, double theta, std::int64_t rotated) {
  const std::string type = value_of<std::string>(rope, {"rope_type", "type"}, "default");
  const auto longest = value_of<double>(config, {"max_position_embeddings"}, 2048);
  const auto original = value_of<double>(config, {"original_max_position_embeddings"},
                                         value_of<double>(rope, {"original_max_position_embeddings"}, longest));
  const double factor = value_of<double>(rope, {"factor"}, longest / original);
  theta = value_of<double>(rope, {"rope_theta"}, theta);
  const auto dims = static_cast<double>(rotated);
  Turns turns;
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < rotated / 2; ++i) {
    const double plain = std::pow(theta, -2.0 * static_cast<double>(i) / dims);
    if (type == "default" || type == "dynamic") {  // no text here is longer than in training
      frequencies.push_back(plain);
    } else if (type == "linear") {
      frequencies.push_back(plain / factor);
    } else if (type == "llama3") {
      const double low = rope["low_freq_factor"];
      const double high = rope["high_freq_factor"];
      const double kept = std::clamp((original * plain / (2 * M_PI) - low) / (high - low), 0.0, 1.0);
      frequencies.push_back(kept * plain + (1 - kept) * plain / factor);
    } else if (type == "yarn") {
      const auto pair = [&](double rounds) {
        return dims * std::log(original / (rounds * 2 * M_PI)) / (2 * std::log(theta));
      };
      const double low = std::max(std::floor(pair(value_of<double>(rope, {"beta_fast"}, 32))), 0.0);
      const double high = std::min(std::ceil(pair(value_of<double>(rope, {"beta_slow"}, 1))), dims - 1);
      const double stretched = std::clamp((static_cast<double>(i) - low) / std::max(high - low, 0.001), 0.0, 1.0);
      frequencies.push_back(plain / factor * stretched + plain * (1 - stretched));
      turns.factor = value_of<double>(rope, {"attention_factor"}, 0.1 * std::log(factor) + 1.0);
    } else if (type == "longrope") {
      const Json& factors = rope[longest > original ? "long_factor" : "short_factor"];
      frequencies.push_back(plain / factors[static_cast<std::size_t>(i)].get<double>());
      turns.factor = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
    } else {
      throw std::runtime_error("direct pass: rope type " + type);
    }
  }
  turns.frequencies = at::tensor(frequencies, at::kDouble);
  return turns;
}

// x * cos + rotate_half(x) * sin, in the leading dimensions that are turned.
at::Tensor rotate(const at::Tensor& x,          // [heads, n, head_dim]
                  const at::Tensor& positions,  // [n] fp64
                  const Turns& turns) {
  const at::Tensor half_angles = positions.unsqueeze(1) * turns.frequencies;
  const at::Tensor angles = at::cat({half_angles, half_angles}, -1);
  const std::int64_t size = angles.size(1);
  const at::Tensor turned = x.narrow(-1, 0, size);
  const at::Tensor half = at::cat({-turned.narrow(-1, size / 2, size / 2), turned.narrow(-1, 0, size / 2)}, -1);
  const at::Tensor result =
      turned * (angles.cos() * turns.factor).to(at::kFloat) + half * (angles.sin() * turns.factor).to(at::kFloat);
  return at::cat({result, x.narrow(-1, size, x.size(-1) - size)}, -1);
}

// Each 32 weights of a row as whole numbers up to 127 times a scale, which is the least that will do in bf16.
at::Tensor to_int8_and_back(const at::Tensor& weight) {
  const at::Tensor groups = weight.view({weight.size(0), weight.size(1) / 32, 32});
  const at::Tensor exact = groups.abs().amax(-1, /*keepdim=*/true) / 127;
  const at::Tensor scale = (exact.view(at::kInt) + 0xFFFF).bitwise_and(-0x10000).view(at::kFloat);
  return ((groups / scale.clamp_min(1e-30)).round() * scale).view(weight.sizes());
}

// A head's slope by the formulas of BLOOM's and MPT's own code.
std::vector<double> bloom_slopes(std::int64_t heads) {
  const double below = std::exp2(std::floor(std::log2(static_cast<double>(heads))));
  std::vector<double> slopes;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto number = static_cast<double>(head);
    slopes.push_back(number < below ? std::exp2(-8.0 / below * (number + 1))
                                    : std::exp2(-4.0 / below * (2 * (number - below) + 1)));
  }
  return slopes;
}

std::vector<double> mpt_slopes(std::int64_t heads) {
  const double above = std::exp2(std::ceil(std::log2(static_cast<double>(heads))));
  std::vector<double> slopes;
  for (std::int64_t head = 0; head < heads; ++head) {
    double number = static_cast<double>(head) + 1;
    if (above != static_cast<double>(heads)) {
      const double half = above / 2;
      number = static_cast<double>(head) < half ? 2 * (static_cast<double>(head) + 1)
                                                : 2 * (static_cast<double>(head) - half) + 1;
    }
    slopes.push_back(std::exp2(-8.0 * number / above));
  }
  return slopes;
}

}  // namespace

// What a family makes of its config.json and its tensors. Everything is read anew from the tensors at each use: the
// measure is to be plain.
struct DirectPass::Model {
  Json config;
  Tensors tensors;
  std::string family;
  std::string prefix;  // of a layer's tensors; '#' stands for its number
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double eps = 1e-5;
  double scale = 0;
  double score_softcap = 0;
  double logit_softcap = 0;
  bool is_gemma = false;
  bool has_layer_norm = false;
  std::vector<double> slopes;

  explicit Model(const std::filesystem::path& directory)
      : config(read_json(directory / "config.json")), tensors(read_all_tensors(directory)) {
    family = config["architectures"][0];
    is_gemma = family.starts_with("Gemma");
    const auto hidden = value_of<std::int64_t>(config, {"hidden_size", "d_model", "n_embd", "n_embed"}, 0);
    layers = value_of<std::int64_t>(config, {"num_hidden_layers", "n_layers", "n_layer"}, 0);
    heads = value_of<std::int64_t>(config, {"num_attention_heads", "n_heads", "n_head"}, 0);
    kv_heads = value_of<std::int64_t>(config, {"num_key_value_heads"}, heads);
    head_dim = value_of<std::int64_t>(config, {"head_dim"},
                                      is_gemma                       ? 256
                                      : family == "Qwen3ForCausalLM" ? 128
                                                                     : hidden / heads);
    eps = value_of<double>(config, {"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"},
                           is_gemma ? 1e-6 : 1e-5);
    scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
    if (family == "FalconForCausalLM") {
      kv_heads = config.value("new_decoder_architecture", false)
                     ? value_of<std::int64_t>(config, {"num_kv_heads"}, heads)
                 : config.value("multi_query", true) ? 1
                                                     : heads;
      head_dim = hidden / heads;
    }
    prefix = family == "MPTForCausalLM" || family == "MptForCausalLM" ? "transformer.blocks.#."
             : family == "GPT2LMHeadModel" || family == "FalconForCausalLM" || family == "BloomForCausalLM"
                 ? "transformer.h.#."
             : family == "GPTNeoXForCausalLM" ? "gpt_neox.layers.#."
             : family == "OPTForCausalLM"     ? "model.decoder.layers.#."
                                              : "model.layers.#.";
    has_layer_norm = !prefix.starts_with("model.layers") || family == "Starcoder2ForCausalLM";
    if (family == "Gemma2ForCausalLM" || family == "Gemma3ForCausalLM") {
      scale = 1.0 / std::sqrt(value_of<double>(config, {"query_pre_attn_scalar"}, 256));
      score_softcap = value_of<double>(config, {"attn_logit_softcapping"}, 0);
      logit_softcap = value_of<double>(config, {"final_logit_softcapping"}, 0);
    }
    if (family == "BloomForCausalLM" || config.value("alibi", false)) {
      slopes = bloom_slopes(heads);
    } else if (prefix == "transformer.blocks.#.") {
      slopes = mpt_slopes(heads);
      scale = value_of<double>(config["attn_config"], {"softmax_scale"}, scale);
    }
    for (double& slope : slopes) {
      slope *= family == "FalconForCausalLM" ? scale : 1.0;  // Falcon scales scores and biases together
    }
  }

  std::string in_layer(std::int64_t layer, const std::string& name) const {
    std::string full = prefix;
    return full.replace(full.find('#'), 1, std::to_string(layer)) + name;
  }

  at::Tensor find(const std::string& name) const {
    const auto found = tensors.find(name);
    return found == tensors.end() ? at::Tensor() : found->second;
  }

  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const at::Tensor& weight = tensors.at(name + ".weight");
    return at::linear(x, family == "GPT2LMHeadModel" ? weight.t() : weight, find(name + ".bias"));
  }

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor& weight = tensors.at(name + ".weight");
    if (has_layer_norm) {
      const at::Tensor bias = find(name + ".bias");
      return at::layer_norm(x, {x.size(-1)}, weight, bias.defined() ? std::optional(bias) : std::nullopt, eps);
    }
    return x / (x * x).mean(-1, true).add(eps).sqrt() * (is_gemma ? weight + 1.0 : weight);
  }

  // [n, heads * head_dim] -> [heads, n, head_dim]
  at::Tensor by_head(const at::Tensor& x, std::int64_t count) const {
    return x.reshape({x.size(0), count, head_dim}).transpose(0, 1);
  }

  // Queries [heads, n, head_dim], keys and values [kv_heads, n, head_dim].
  std::array<at::Tensor, 3> projections(std::int64_t layer, const at::Tensor& x) const {
    for (const char* name : {"self_attn.qkv_proj", "attn.c_attn", "attn.Wqkv"}) {
      if (tensors.contains(in_layer(layer, name) + ".weight")) {
        at::Tensor all = linear(in_layer(layer, name), x);
        if (prefix == "transformer.blocks.#.") {
          const auto clip = value_of<double>(config["attn_config"], {"clip_qkv"}, 0);
          all = clip > 0 ? all.clamp(-clip, clip) : all;
        }
        const std::int64_t q = heads * head_dim;
        const std::int64_t k = kv_heads * head_dim;
        return {by_head(all.narrow(1, 0, q), heads), by_head(all.narrow(1, q, k), kv_heads),
                by_head(all.narrow(1, q + k, k), kv_heads)};
      }
    }
    for (const char* name : {"self_attention.query_key_value", "attention.query_key_value"}) {
      if (tensors.contains(in_layer(layer, name) + ".weight")) {  // query heads, key and value of each KV head in turn
        const std::int64_t group = heads / kv_heads;
        const at::Tensor all = linear(in_layer(layer, name), x).view({x.size(0), kv_heads, group + 2, head_dim});
        return {by_head(all.narrow(2, 0, group), heads), all.select(2, group).transpose(0, 1),
                all.select(2, group + 1).transpose(0, 1)};
      }
    }
    const auto project = [&](const char* name, std::int64_t count) {
      return by_head(linear(in_layer(layer, std::string("self_attn.") + name), x), count);
    };
    return {project("q_proj", heads), project("k_proj", kv_heads), project("v_proj", kv_heads)};
  }

  bool slides(std::int64_t layer) const {
    if (config.contains("layer_types") && config["layer_types"].is_array()) {
      return config["layer_types"][static_cast<std::size_t>(layer)] == "sliding_attention";
    }
    return family == "MistralForCausalLM" || family == "Phi3ForCausalLM" || family == "Starcoder2ForCausalLM";
  }

  std::optional<Turns> turns(std::int64_t layer) const {
    if (!slopes.empty() || family == "OPTForCausalLM" || family == "GPT2LMHeadModel") {
      return std::nullopt;
    }
    Json rope = Json::object();
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (config.contains(key) && config[key].is_object()) {
        rope.update(config[key]);
      }
    }
    double theta = value_of<double>(config, {"rope_theta"}, 10000.0);
    if (family == "Gemma3ForCausalLM") {
      theta = slides(layer) ? 1e4 : 1e6;
      rope = rope.value(slides(layer) ? "sliding_attention" : "full_attention", Json::object());
    }
    const double part = value_of<double>(
        rope, {"partial_rotary_factor"},
        value_of<double>(config, {"partial_rotary_factor", "rotary_pct"}, family == "GPTNeoXForCausalLM" ? 0.25 : 1.0));
    return turns_of(config, rope, theta, static_cast<std::int64_t>(static_cast<double>(head_dim) * part));
  }

  at::Tensor attention(std::int64_t layer, const at::Tensor& x, const at::Tensor& positions, at::Tensor mask) const {
    auto [q, k, v] = projections(layer, x);
    if (tensors.contains(in_layer(layer, "self_attn.q_norm.weight"))) {
      q = norm(in_layer(layer, "self_attn.q_norm"), q);
      k = norm(in_layer(layer, "self_attn.k_norm"), k);
    }
    if (const std::optional<Turns> turned = turns(layer)) {
      q = rotate(q, positions, *turned);
      k = rotate(k, positions, *turned);
    }
    k = k.repeat_interleave(heads / kv_heads, 0);
    v = v.repeat_interleave(heads / kv_heads, 0);
    at::Tensor scores = at::matmul(q, k.transpose(1, 2)) * scale;
    if (score_softcap > 0) {
      scores = (scores / score_softcap).tanh() * score_softcap;
    }
    const at::Tensor distance = positions.unsqueeze(1) - positions.unsqueeze(0);  // [n, n]
    if (!slopes.empty()) {
      scores = scores - (at::tensor(slopes, at::kDouble).view({-1, 1, 1}) * distance).to(at::kFloat);
    }
    const auto window = value_of<std::int64_t>(config, {"sliding_window"}, 0);
    if (window > 0 && slides(layer)) {
      mask = mask.logical_and(distance.lt(static_cast<double>(window)));
    }
    const at::Tensor weights =
        at::softmax(scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity()), -1);
    const at::Tensor out = at::matmul(weights, v).transpose(0, 1).reshape({x.size(0), heads * head_dim});
    for (const char* name : {"self_attn.o_proj", "self_attn.out_proj", "attn.c_proj", "attn.out_proj",
                             "self_attention.dense", "attention.dense"}) {
      if (tensors.contains(in_layer(layer, name) + ".weight")) {
        return linear(in_layer(layer, name), out);
      }
    }
    throw std::runtime_error("direct pass: no output projection");
  }

  at::Tensor activate(const at::Tensor& x) const {
    const auto name =
        value_of<std::string>(config, {"hidden_activation", "activation_function", "activation", "hidden_act"},
                              is_gemma ? "gelu_new" : "gelu");
    if (name == "silu") {
      return at::silu(x);
    }
    if (name == "relu") {
      return at::relu(x);
    }
    return at::gelu(x, name == "gelu" && family != "BloomForCausalLM" ? "none" : "tanh");
  }

  at::Tensor mlp(std::int64_t layer, const at::Tensor& x) const {
    if (tensors.contains(in_layer(layer, "mlp.gate_up_proj.weight"))) {
      const at::Tensor both = linear(in_layer(layer, "mlp.gate_up_proj"), x);
      const std::int64_t half = both.size(1) / 2;
      return linear(in_layer(layer, "mlp.down_proj"), activate(both.narrow(1, 0, half)) * both.narrow(1, half, half));
    }
    if (tensors.contains(in_layer(layer, "mlp.gate_proj.weight"))) {
      return linear(in_layer(layer, "mlp.down_proj"),
                    activate(linear(in_layer(layer, "mlp.gate_proj"), x)) * linear(in_layer(layer, "mlp.up_proj"), x));
    }
    using Names = std::pair<const char*, const char*>;
    for (const auto& [up, down] :
         {Names("fc1", "fc2"), Names("mlp.c_fc", "mlp.c_proj"), Names("ffn.up_proj", "ffn.down_proj"),
          Names("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")}) {
      if (tensors.contains(in_layer(layer, up) + ".weight")) {
        return linear(in_layer(layer, down), activate(linear(in_layer(layer, up), x)));
      }
    }
    throw std::runtime_error("direct pass: no MLP");
  }

  // The name of the layer's norm among those a family may use.
  std::string norm_name(std::int64_t layer, const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (tensors.contains(in_layer(layer, name) + ".weight")) {
        return in_layer(layer, name);
      }
    }
    return {};
  }

  at::Tensor block(std::int64_t layer, const at::Tensor& hidden, const at::Tensor& positions,
                   const at::Tensor& mask) const {
    const std::string first =
        norm_name(layer, {"input_layernorm", "ln_attn", "self_attn_layer_norm", "ln_1", "norm_1"});
    const at::Tensor normed = norm(first, hidden);
    at::Tensor attended = attention(layer, normed, positions, mask);
    if (tensors.contains(in_layer(layer, "pre_feedforward_layernorm.weight"))) {  // Gemma 2 and 3
      const at::Tensor middle = hidden + norm(in_layer(layer, "post_attention_layernorm"), attended);
      const at::Tensor result = mlp(layer, norm(in_layer(layer, "pre_feedforward_layernorm"), middle));
      return middle + norm(in_layer(layer, "post_feedforward_layernorm"), result);
    }
    const std::string second =
        norm_name(layer, {"post_attention_layernorm", "ln_mlp", "final_layer_norm", "ln_2", "norm_2"});
    const bool parallel = (family == "FalconForCausalLM" &&
                           (config.value("new_decoder_architecture", false) || config.value("parallel_attn", true))) ||
                          (family == "GPTNeoXForCausalLM" && config.value("use_parallel_residual", true));
    if (parallel) {
      return hidden + attended + mlp(layer, second.empty() ? normed : norm(second, hidden));
    }
    const at::Tensor middle = hidden + attended;
    return middle + mlp(layer, norm(second, middle));
  }

  const at::Tensor& first_of(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
      if (tensors.contains(name)) {
        return tensors.at(name);
      }
    }
    throw std::runtime_error("direct pass: none of " + names.front() + " and its like");
  }

  const at::Tensor& embedding() const {
    return first_of({"model.embed_tokens.weight", "model.decoder.embed_tokens.weight", "transformer.wte.weight",
                     "transformer.word_embeddings.weight", "gpt_neox.embed_in.weight"});
  }

  at::Tensor embed(const DirectInput& input) const {
    at::Tensor hidden = embedding().index_select(0, at::tensor(input.tokens, at::kInt));
    const at::Tensor positions = at::tensor(input.positions, at::kInt);
    if (family == "OPTForCausalLM") {
      hidden = hidden + tensors.at("model.decoder.embed_positions.weight").index_select(0, positions + 2);
    } else if (family == "GPT2LMHeadModel") {
      hidden = hidden + tensors.at("transformer.wpe.weight").index_select(0, positions);
    } else if (is_gemma) {
      hidden = hidden * std::sqrt(static_cast<double>(hidden.size(1)));
    } else if (family == "BloomForCausalLM") {
      hidden = norm("transformer.word_embeddings_layernorm", hidden);
    }
    return hidden;
  }

  at::Tensor head(const at::Tensor& hidden) const {
    std::string last;
    for (const char* name : {"model.norm", "model.decoder.final_layer_norm", "transformer.ln_f", "transformer.norm_f",
                             "gpt_neox.final_layer_norm"}) {
      last = tensors.contains(std::string(name) + ".weight") ? name : last;
    }
    const bool tied = value_of<bool>(config, {"tie_word_embeddings"}, is_gemma || has_layer_norm);
    const at::Tensor& weight = !tied                    ? first_of({"lm_head.weight", "embed_out.weight"})
                               : rounded_head.defined() ? rounded_head
                                                        : embedding();
    at::Tensor logits = at::linear(norm(last, hidden), weight);
    if (logit_softcap > 0) {
      logits = (logits / logit_softcap).tanh() * logit_softcap;
    }
    return logits.contiguous();
  }

  void round_weights() {
    rounded_head = to_int8_and_back(embedding());
    for (auto& [name, tensor] : tensors) {
      if (tensor.dim() == 2 && name.find("embed") == std::string::npos) {
        tensor = to_int8_and_back(tensor);
      }
    }
  }

  at::Tensor rounded_head;
};

std::vector<std::uint8_t> causal_mask(std::int32_t n) {
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 0);
  for (std::int32_t row = 0; row < n; ++row) {
    std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(row) * n, row + 1, std::uint8_t{1});
  }
  return mask;
}

DirectPass::DirectPass(const std::filesystem::path& directory, Weights weights) {
  const c10::InferenceMode inference;
  model_ = std::make_unique<Model>(directory);
  if (weights == Weights::kInt8) {
    model_->round_weights();
  }
}

DirectPass::~DirectPass() = default;

std::int32_t DirectPass::vocab_size() const { return model_->config["vocab_size"]; }

std::vector<float> DirectPass::logits(const DirectInput& input) const {
  const c10::InferenceMode inference;
  const auto n = static_cast<std::int64_t>(input.tokens.size());
  const at::Tensor mask = at::tensor(at::ArrayRef<std::uint8_t>(input.mask), at::kByte).to(at::kBool).view({n, n});
  const at::Tensor positions = at::tensor(input.positions, at::kDouble);
  at::Tensor hidden = model_->embed(input);
  for (std::int64_t layer = 0; layer < model_->layers; ++layer) {
    hidden = model_->block(layer, hidden, positions, mask);
  }
  if (!input.rows.empty()) {
    hidden = hidden.index_select(0, at::tensor(input.rows, at::kInt));
  }
  const at::Tensor logits = model_->head(hidden);
  return {logits.const_data_ptr<float>(), logits.const_data_ptr<float>() + logits.numel()};
}

}  // namespace promptcached::parity
