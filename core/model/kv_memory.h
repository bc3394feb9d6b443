// Memory for KV on the model's device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <unordered_map>

namespace promptcached::model {

// Not thread-safe on CUDA, like the model it serves.
class KvMemory final {
 public:
  explicit KvMemory(at::Device device) : device_(device) {}

  // 64-byte aligned; nullptr when there is no room.
  std::byte* allocate(std::size_t bytes);
  void deallocate(std::byte* data);
  void poison(std::byte* data, std::size_t bytes) const;
  std::size_t free_bytes() const;

 private:
  at::Device device_;
  std::unordered_map<std::byte*, at::Tensor> blocks_;  // CUDA only: keeps each block alive
};

}  // namespace promptcached::model
