#include "core/model/causal_lm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "core/kernels/simd_target.h"
#include "core/model/architectures/architecture.h"
#include "core/model/aten.h"
#include "core/model/batch_check.h"
#include "core/model/decoder.h"
#include "core/model/device.h"
#include "core/model/fingerprint.h"
#include "core/model/kv_memory.h"
#include "core/model/model_config.h"
#include "core/model/model_plan.h"
#include "core/model/parallel.h"
#include "core/model/weights.h"

namespace promptcached::model {
namespace {

class LoadedModel final : public CausalLm {
 public:
  LoadedModel(ModelInfo info, const ModelConfig& config, ModelWeights weights, const Compute& compute)
      : info_(std::move(info)),
        memory_(compute.device),
        decoder_(config, std::move(weights), compute,
                 compute.device.is_cpu() ? make_cpu_attention() : make_generic_attention()) {}

  const ModelInfo& info() const override { return info_; }

  Logits forward(const ForwardBatch& batch) override {
    check_batch(batch, info_);
    const at::InferenceMode inference;
    flush_denormals();
    logits_ = decoder_.forward(batch);
    return {.data = logits_.const_data_ptr<float>(),
            .rows = static_cast<std::int32_t>(logits_.size(0)),
            .vocab_size = info_.vocab_size};
  }

  std::byte* allocate_kv(std::size_t bytes) override { return memory_.allocate(bytes); }
  void deallocate_kv(std::byte* data, std::size_t /*bytes*/) override { memory_.deallocate(data); }
  void poison_kv(std::byte* data, std::size_t bytes) override { memory_.poison(data, bytes); }
  std::byte* allocate_host(std::size_t bytes) override { return memory_.allocate_pinned(bytes); }
  void deallocate_host(std::byte* data, std::size_t /*bytes*/) override { memory_.deallocate_pinned(data); }
  std::size_t free_host_memory_bytes() const override { return memory_.free_host_bytes(); }
  void copy_kv_to_host(std::byte* host, const std::byte* data, std::size_t bytes) override {
    memory_.copy_to_host(host, data, bytes);
  }
  void copy_kv_from_host(std::byte* data, const std::byte* host, std::size_t bytes) override {
    memory_.copy_from_host(data, host, bytes);
  }
  std::size_t free_memory_bytes() const override { return memory_.free_bytes(); }

 private:
  ModelInfo info_;
  KvMemory memory_;
  Decoder decoder_;
  at::Tensor logits_;  // [rows, vocab], the last forward()'s
};

ModelInfo describe(const ModelConfig& config, const ModelWeights& weights, const Compute& compute) {
  ModelInfo info;
  info.architecture = config.architecture->name;
  info.layers = static_cast<std::int32_t>(config.layers);
  info.kv_heads = static_cast<std::int32_t>(config.kv_heads);
  info.head_dim = static_cast<std::int32_t>(config.head_dim);
  info.vocab_size = static_cast<std::int32_t>(config.vocab_size);
  info.weights_dtype = weights_name(compute);
  info.kv_dtype = dtype_name(compute.kv);
  info.kv_element_bytes = static_cast<std::int32_t>(c10::elementSize(compute.kv));
  info.device = compute.device.str();
  info.parameters = weights.parameters;
  info.weight_bytes = weight_bytes(config, info.weights_dtype);
  info.end_tokens = config.end_tokens;
  return info;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string fixed(double value, const char* format) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

void choose_simd(const std::string& name) {
  if (name == "auto" || kernels::limit_simd_target(name)) {
    return;
  }
  std::string known = "auto";
  for (const std::string& target : kernels::simd_targets()) {
    known += ", " + target;
  }
  throw std::runtime_error("--simd '" + name + "': this processor has " + known);
}

std::string loaded_line(const ModelInfo& info, double seconds) {
  return "loaded " + fixed(static_cast<double>(info.parameters) / 1e6, "%.1f") + " million parameters, " +
         fixed(static_cast<double>(info.weight_bytes) / (1 << 20), "%.0f") + " MiB as " + info.weights_dtype + ", in " +
         fixed(seconds, "%.1f") + " s";
}

}  // namespace

std::unique_ptr<CausalLm> load_model(const LoadOptions& options) {
  const at::InferenceMode inference;
  const checkpoint::ModelFiles files(options.path);
  ModelConfig config = read_model_config(files);
  const std::int64_t positions = usable_positions(config, options.max_model_len);
  config.text_length = positions;
  if (config.depends_on_length() && options.log) {
    options.log("rope scaling is fixed for texts of up to " + std::to_string(positions) +
                " positions (--max-model-len)");
  }
  const Compute compute = resolve_compute(options);
  choose_simd(options.simd);
  set_threads(options.threads > 0 ? options.threads : physical_cores());
  if (compute.device.is_cpu() && options.log) {
    options.log("computing with " + kernels::simd_target() + " on " + std::to_string(team().threads()) + " threads");
  }
  const auto begin = std::chrono::steady_clock::now();
  const checkpoint::StoredTensors stored = files.tensors();
  std::string digest = fingerprint(config, stored, compute);
  ModelWeights weights = load_weights(config, stored, compute, options.log);
  ModelInfo info = describe(config, weights, compute);
  info.fingerprint = std::move(digest);
  info.max_positions = static_cast<std::int32_t>(positions);
  if (options.log) {
    options.log(loaded_line(info, seconds_since(begin)));
  }
  return std::make_unique<LoadedModel>(std::move(info), config, std::move(weights), compute);
}

}  // namespace promptcached::model
