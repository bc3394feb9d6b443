// Memory for KV on the model's device, and the way between it and the computer's own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace promptcached::model {

// Not thread-safe on CUDA, like the model it serves, but for the copies.
class KvMemory final {
 public:
  explicit KvMemory(at::Device device) : device_(device) {}

  // 64-byte aligned; nullptr when there is no room.
  std::byte* allocate(std::size_t bytes);
  void deallocate(std::byte* data);
  void poison(std::byte* data, std::size_t bytes) const;
  std::size_t free_bytes() const;
  std::size_t free_host_bytes() const;

  // Between device and host, from any thread; done when they return. On CUDA they have a stream of their own, beside
  // which the model computes on.
  void copy_to_host(std::byte* host, const std::byte* data, std::size_t bytes);
  void copy_from_host(std::byte* data, const std::byte* host, std::size_t bytes);
  // Host memory that CUDA copies to and from directly; elsewhere plain memory.
  std::byte* allocate_pinned(std::size_t bytes);
  void deallocate_pinned(std::byte* data);

 private:
  void copy(std::byte* to, at::Device to_device, const std::byte* from, at::Device from_device, std::size_t bytes);

  at::Device device_;
  std::unordered_map<std::byte*, at::Tensor> blocks_;  // CUDA only: keeps each block alive
  std::mutex copy_mutex_;  // guards what follows: the mover's threads copy one after another
  std::optional<c10::Stream> copy_stream_;
  std::unordered_map<std::byte*, at::Tensor> pinned_;
};

}  // namespace promptcached::model
