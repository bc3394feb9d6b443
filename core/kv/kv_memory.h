// Where KV lives: its geometry, and the memory of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace promptcached::kv {

// The shape of KV for one model. A block of n tokens is one contiguous, 64-byte aligned array
// [layers, 2 (K, V), kv_heads, n, head_dim] in the KV dtype.
struct KvGeometry {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t element_bytes = 0;

  std::size_t bytes_per_token() const {
    return std::size_t{2} * static_cast<std::size_t>(layers) * static_cast<std::size_t>(kv_heads) *
           static_cast<std::size_t>(head_dim) * static_cast<std::size_t>(element_bytes);
  }
  std::size_t bytes(std::int64_t tokens) const { return bytes_per_token() * static_cast<std::size_t>(tokens); }
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
};

std::unique_ptr<KvAllocator> make_host_allocator();

}  // namespace promptcached::kv
