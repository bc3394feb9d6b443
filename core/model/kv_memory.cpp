#include "core/model/kv_memory.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "core/model/aten.h"
#include "core/model/device.h"

namespace promptcached::model {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kPoison = 0xFF;  // NaN in fp32, bf16 and fp16

// A number alone in a file, as in the cgroup files; nothing useful (such as "max") gives the largest number.
std::size_t read_limit(const char* path) {
  std::ifstream stream(path);
  std::size_t value = 0;
  return stream >> value ? value : std::numeric_limits<std::size_t>::max();
}

std::size_t available_host_bytes() {
  std::ifstream stream("/proc/meminfo");
  std::string key;
  std::size_t kilobytes = 0;
  std::string rest;
  std::size_t available = 0;
  while (stream >> key >> kilobytes && std::getline(stream, rest)) {
    if (key == "MemAvailable:") {
      available = kilobytes * 1024;
      break;
    }
  }
  const std::size_t limit = read_limit("/sys/fs/cgroup/memory.max");
  if (limit != std::numeric_limits<std::size_t>::max()) {
    const std::size_t used = read_limit("/sys/fs/cgroup/memory.current");
    available = std::min(available, limit > used ? limit - used : 0);
  }
  return available;
}

}  // namespace

std::byte* KvMemory::allocate(std::size_t bytes) {
  if (device_.is_cpu()) {
    if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) {
      return nullptr;
    }
    return static_cast<std::byte*>(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
  }
  try {
    const at::Tensor block =
        at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_));
    auto* data = static_cast<std::byte*>(block.data_ptr());
    blocks_.emplace(data, block);
    return data;
  } catch (const c10::OutOfMemoryError&) {
    return nullptr;
  }
}

void KvMemory::deallocate(std::byte* data) {
  if (device_.is_cpu()) {
    std::free(data);
  } else {
    blocks_.erase(data);
  }
}

void KvMemory::poison(std::byte* data, std::size_t bytes) const {
  if (device_.is_cpu()) {
    std::memset(data, kPoison, bytes);
  } else {
    tensor_over(data, {static_cast<std::int64_t>(bytes)}, {1}, at::kByte, device_).fill_(kPoison);
  }
}

std::size_t KvMemory::free_bytes() const {
  return device_.is_cpu() ? available_host_bytes() : at::accelerator::getMemoryInfo(device_.index()).first;
}

std::size_t KvMemory::free_host_bytes() const { return available_host_bytes(); }

void KvMemory::copy_to_host(std::byte* host, const std::byte* data, std::size_t bytes) {
  copy(host, at::kCPU, data, device_, bytes);
}

void KvMemory::copy_from_host(std::byte* data, const std::byte* host, std::size_t bytes) {
  copy(data, device_, host, at::kCPU, bytes);
}

void KvMemory::copy(std::byte* to, at::Device to_device, const std::byte* from, at::Device from_device,
                    std::size_t bytes) {
  if (device_.is_cpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::lock_guard lock(copy_mutex_);
  const c10::impl::VirtualGuardImpl device(device_.type());
  if (!copy_stream_.has_value()) {
    copy_stream_ = device.getNewStream(device_);
  }
  const c10::StreamGuard guard(*copy_stream_);
  const auto size = static_cast<std::int64_t>(bytes);
  at::Tensor target = tensor_over(to, {size}, {1}, at::kByte, to_device);
  target.copy_(tensor_over(const_cast<std::byte*>(from), {size}, {1}, at::kByte, from_device), /*non_blocking=*/true);
  device.synchronizeStream(*copy_stream_);
}

std::byte* KvMemory::allocate_pinned(std::size_t bytes) {
  if (device_.is_cpu()) {
    return allocate(bytes);
  }
  try {
    const at::Tensor block = at::empty({static_cast<std::int64_t>(bytes)},
                                       at::TensorOptions().dtype(at::kByte).device(at::kCPU).pinned_memory(true));
    auto* data = static_cast<std::byte*>(block.data_ptr());
    const std::lock_guard lock(copy_mutex_);
    pinned_.emplace(data, block);
    return data;
  } catch (const c10::Error&) {  // the system pins no more
    return nullptr;
  }
}

void KvMemory::deallocate_pinned(std::byte* data) {
  if (device_.is_cpu()) {
    std::free(data);
    return;
  }
  const std::lock_guard lock(copy_mutex_);
  pinned_.erase(data);
}

}  // namespace promptcached::model
