#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/process_stats.h"
#include "core/kv/kv_memory.h"
#include "core/kv/module_key.h"
#include "tests/catch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PROMPTCACHED_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PROMPTCACHED_SANITIZED 1
#endif
#endif

namespace promptcached::kv {
namespace {

TEST_CASE("host memory is aligned, writable throughout, and distinct", "[kv]") {
  const auto allocator = make_host_allocator();
  const std::vector<std::size_t> sizes = {1,      64,      65,      4096,    131071,  131072,
                                          131073, 1000000, 2097151, 2097152, 2097153, 5000001};
  std::vector<std::byte*> blocks;
  blocks.reserve(sizes.size());
  for (const std::size_t size : sizes) {
    std::byte* const data = allocator->allocate(size);
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    std::memset(data, static_cast<int>(blocks.size() + 1), size);
    blocks.push_back(data);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(blocks[i][0] == static_cast<std::byte>(i + 1));
    CHECK(blocks[i][sizes[i] - 1] == static_cast<std::byte>(i + 1));
    allocator->deallocate(blocks[i], sizes[i]);
  }
}

TEST_CASE("memory that cannot be had is a null pointer", "[kv]") {
  const auto allocator = make_host_allocator();
  CHECK(allocator->allocate(std::size_t{1} << 60) == nullptr);
}

#ifndef PROMPTCACHED_SANITIZED  // their own bookkeeping would be measured
TEST_CASE("freed memory returns to the system, also from between what is still used", "[kv]") {
  const auto allocator = make_host_allocator();
  constexpr std::size_t kSize = 700000;
  constexpr std::size_t kCount = 200;
  const auto resident = [] { return static_cast<double>(read_process_stats().resident_bytes); };
  const auto allocate_all = [&] {
    std::vector<std::byte*> blocks;
    blocks.reserve(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      blocks.push_back(allocator->allocate(kSize));
      std::memset(blocks.back(), 1, kSize);
    }
    return blocks;
  };
  const double before = resident();
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::byte*> blocks = allocate_all();
    const double full = resident();
    CHECK(full - before > 0.95 * kSize * kCount);
    for (std::size_t i = 0; i < kCount; i += 2) {
      allocator->deallocate(blocks[i], kSize);
    }
    const double half = resident();
    CHECK(full - half > 0.45 * kSize * kCount);
    for (std::size_t i = 1; i < kCount; i += 2) {
      allocator->deallocate(blocks[i], kSize);
    }
    CHECK(resident() - before < 0.05 * kSize * kCount);
  }
}
#endif

TEST_CASE("a key is written in hexadecimal and hashed by its own bytes", "[kv]") {
  ModuleKey key;
  key.bytes[0] = 0xAB;
  key.bytes[31] = 0x01;
  CHECK(key.hex() == "ab" + std::string(60, '0') + "01");
  ModuleKey other = key;
  CHECK(ModuleKeyHash()(key) == ModuleKeyHash()(other));
  other.bytes[0] = 0xAC;
  CHECK(ModuleKeyHash()(key) != ModuleKeyHash()(other));
}

}  // namespace
}  // namespace promptcached::kv
