// CausalLm: a loaded decoder-only model. The only way the engine talks to libtorch; no torch in this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/forward_batch.h"

namespace promptcached::model {

// What the rest of the house needs to know about a model.
struct ModelInfo {
  std::string architecture;  // as in config.json, e.g. "LlamaForCausalLM"
  std::string fingerprint;   // hex digest of config and weights' identity: part of every ModuleKey
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t vocab_size = 0;     // width of a logits row
  std::int32_t max_positions = 0;  // max_position_embeddings, or --max-model-len when smaller
  std::string weights_dtype;       // "fp32", "bf16", "fp16", "int8"
  std::string kv_dtype;
  std::int32_t kv_element_bytes = 0;
  std::string device;  // "cpu", "cuda:0"
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;
  std::vector<std::int32_t> end_tokens;  // eos_token_id of generation_config.json, else of config.json
};

// Next-token logits, fp32, in host memory: [rows, vocab_size], row i for logit_rows[i] of the batch.
// Valid until the next forward().
struct Logits {
  const float* data = nullptr;
  std::int32_t rows = 0;
  std::int32_t vocab_size = 0;
  const float* row(std::int32_t i) const { return data + static_cast<std::ptrdiff_t>(i) * vocab_size; }
};

// Not thread-safe: one thread runs forward().
class CausalLm {
 public:
  virtual ~CausalLm() = default;
  virtual const ModelInfo& info() const = 0;
  // Runs the batch: stores K and V where the writes say, and returns the logits asked for. Throws c10::Error (a
  // std::exception) on faults of the device, out of memory included; the writes' target memory is then undefined.
  virtual Logits forward(const ForwardBatch& batch) = 0;

  // Device memory for KV (64-byte aligned); nullptr when there is no room.
  virtual std::byte* allocate_kv(std::size_t bytes) = 0;
  virtual void deallocate_kv(std::byte* data, std::size_t bytes) = 0;
  virtual void poison_kv(std::byte* data, std::size_t bytes) = 0;  // fills with NaN patterns
  virtual std::size_t free_memory_bytes() const = 0;               // on the model's device, now

  // The computer's own memory, where KV is kept that the device has no room for: 64-byte aligned, on CUDA pinned. The
  // copies are done when they return, and any thread may ask for them. As they stand here, both memories are one.
  virtual std::byte* allocate_host(std::size_t bytes) { return allocate_kv(bytes); }
  virtual void deallocate_host(std::byte* data, std::size_t bytes) { deallocate_kv(data, bytes); }
  virtual std::size_t free_host_memory_bytes() const { return free_memory_bytes(); }
  virtual void copy_kv_to_host(std::byte* host, const std::byte* data, std::size_t bytes) {
    std::memcpy(host, data, bytes);
  }
  virtual void copy_kv_from_host(std::byte* data, const std::byte* host, std::size_t bytes) {
    std::memcpy(data, host, bytes);
  }
};

struct LoadOptions {
  std::filesystem::path path;    // a Hugging Face directory or a GGUF file
  std::string device = "auto";   // "cpu", "cuda", "cuda:1"; auto: cuda when it can be loaded and has a device, else cpu
  std::string weights = "auto";  // "fp32", "bf16", "fp16", "int8"; auto: 16-bit on CUDA, int8 on the CPU
  std::string kv_dtype = "auto";                // "fp32", "bf16", "fp16"; auto: 16-bit on CUDA, fp16 on the CPU
  std::int32_t threads = 0;                     // 0: physical cores
  std::string simd = "auto";                    // instruction set of the CPU's loops; auto: the best there is
  std::int32_t max_model_len = 0;               // 0: the model's own
  std::function<void(const std::string&)> log;  // progress lines; may be empty
};

// Loads a model. Throws std::runtime_error naming file, tensor or field at fault: missing or short
// shard, missing tensor, shape mismatch, unknown architecture or rope type, CUDA that cannot be loaded.
std::unique_ptr<CausalLm> load_model(const LoadOptions& options);

}  // namespace promptcached::model
