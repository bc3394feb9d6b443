#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstdint>
#include <cstring>
#include <new>

#include "core/kv/kv_memory.h"

namespace promptcached::kv {
namespace {

constexpr std::size_t kAlignment = 64;
// From here on memory is mapped, not taken from the heap. malloc raises its own mapping threshold up to 32 MiB as
// mapped memory is freed, and serves what comes next from a heap that cannot shrink while anything lies at its end:
// memory evicted from the pool would not return to the system.
constexpr std::size_t kMapFrom = std::size_t{128} << 10;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// 0xFF throughout is a NaN in fp32, fp16 and bf16.
constexpr int kPoisonByte = 0xFF;

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

std::size_t mapped_size(std::size_t bytes) {
  static const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return round_up(bytes, kPage);
}

std::byte* map(std::size_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

// Maps `size` bytes that start at a huge page, and asks for huge pages: filling and reading a long module costs one
// page fault and one TLB entry for 2 MiB. What does not fill a huge page at the end stays in small ones.
std::byte* map_huge(std::size_t size) {
  std::byte* const start = map(size + kHugePage);
  if (start == nullptr) {
    return nullptr;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::size_t before = round_up(address, kHugePage) - address;
  if (before > 0) {
    munmap(start, before);
  }
  std::byte* const data = start + before;
  if (before < kHugePage) {
    munmap(data + size, kHugePage - before);
  }
  madvise(data, size, MADV_HUGEPAGE);  // advice only: small pages are as right
  return data;
}

class HostAllocator final : public KvAllocator {
 public:
  std::byte* allocate(std::size_t bytes) override {
    assert(bytes > 0);
    if (bytes < kMapFrom) {
      return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{kAlignment}, std::nothrow));
    }
    const std::size_t size = mapped_size(bytes);
    return size < kHugePage ? map(size) : map_huge(size);
  }

  void deallocate(std::byte* data, std::size_t bytes) override {
    if (bytes < kMapFrom) {
      ::operator delete(data, std::align_val_t{kAlignment});
    } else {
      munmap(data, mapped_size(bytes));
    }
  }

  void poison(std::byte* data, std::size_t bytes) override { std::memset(data, kPoisonByte, bytes); }
};

}  // namespace

void KvAllocator::copy_to_host(std::byte* host, const std::byte* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
}

void KvAllocator::copy_from_host(std::byte* device, const std::byte* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
}

std::unique_ptr<KvAllocator> make_host_allocator() { return std::make_unique<HostAllocator>(); }

}  // namespace promptcached::kv
