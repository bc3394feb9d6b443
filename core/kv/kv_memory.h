// Where KV lives: its geometry, and the memory of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/kernels/attention.h"

namespace promptcached::kv {

// "fp16" and "bf16"; all else is fp32.
inline kernels::KvFormat format_named(std::string_view name) {
  return name == "fp16"   ? kernels::KvFormat::kFp16
         : name == "bf16" ? kernels::KvFormat::kBf16
                          : kernels::KvFormat::kFp32;
}

// The shape of KV for one model. A block of n tokens is one contiguous, 64-byte aligned array
// [layers, 2 (K, V), kv_heads, n, head_dim] in the KV dtype.
struct KvGeometry {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  kernels::KvFormat format = kernels::KvFormat::kFp32;

  std::size_t element_bytes() const { return format == kernels::KvFormat::kFp32 ? 4 : 2; }
  // Planes are the K and the V of each layer in turn: [kv_heads, n, head_dim], one after another in a block.
  std::int32_t planes() const { return 2 * layers; }
  std::size_t plane_bytes(std::int64_t tokens) const {
    return static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(head_dim) * element_bytes() *
           static_cast<std::size_t>(tokens);
  }
  std::size_t bytes(std::int64_t tokens) const { return static_cast<std::size_t>(planes()) * plane_bytes(tokens); }
  std::size_t bytes_per_token() const { return bytes(1); }
  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

// Allocates KV memory on one device. Implementations: host memory here, device memory in core/model.
class KvAllocator {
 public:
  virtual ~KvAllocator() = default;
  // `bytes` > 0, 64-byte aligned; nullptr when the device is out of memory.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void deallocate(std::byte* data, std::size_t bytes) = 0;
  // Overwrites memory with a pattern that shows up as NaN in every KV dtype (poison mode).
  virtual void poison(std::byte* data, std::size_t bytes) = 0;

  // Whether the processor reads and writes this memory like its own. Where it does not, the two copies below carry KV
  // to and from memory that it can; both return when the copy is done, and any thread may call them.
  virtual bool on_host() const { return true; }
  virtual void copy_to_host(std::byte* host, const std::byte* device, std::size_t bytes);
  virtual void copy_from_host(std::byte* device, const std::byte* host, std::size_t bytes);
};

std::unique_ptr<KvAllocator> make_host_allocator();

}  // namespace promptcached::kv
