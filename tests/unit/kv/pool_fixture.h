// What the pool's tests share: an allocator that counts, keys by number, and a clock that stands still.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/kv/module_pool.h"

namespace promptcached::kv {

// What a CountingAllocator saw; outlives it, so that a test can look after the pool has gone.
struct AllocatorLog {
  std::mutex mutex;
  std::map<std::byte*, std::size_t> live;
  std::size_t bytes = 0;
  std::size_t peak_bytes = 0;
  std::size_t limit_bytes = SIZE_MAX;  // past it, allocate() answers nullptr: the device is full
  int faults = 0;                      // wrong or double deallocations

  std::size_t live_bytes() {
    const std::lock_guard lock(mutex);
    return bytes;
  }
};

class CountingAllocator final : public KvAllocator {
 public:
  explicit CountingAllocator(std::shared_ptr<AllocatorLog> log) : log_(std::move(log)) {}

  std::byte* allocate(std::size_t bytes) override {
    const std::lock_guard lock(log_->mutex);
    if (bytes == 0 || log_->bytes + bytes > log_->limit_bytes) {
      log_->faults += bytes == 0 ? 1 : 0;
      return nullptr;
    }
    auto* const data = static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
    log_->live.emplace(data, bytes);
    log_->bytes += bytes;
    log_->peak_bytes = std::max(log_->peak_bytes, log_->bytes);
    return data;
  }

  void deallocate(std::byte* data, std::size_t bytes) override {
    const std::lock_guard lock(log_->mutex);
    const auto found = log_->live.find(data);
    if (found == log_->live.end() || found->second != bytes) {
      ++log_->faults;
      return;
    }
    log_->bytes -= bytes;
    log_->live.erase(found);
    ::operator delete(data, std::align_val_t{64});
  }

  void poison(std::byte* data, std::size_t bytes) override { std::memset(data, 0xFF, bytes); }

 private:
  std::shared_ptr<AllocatorLog> log_;
};

inline ModuleKey key_of(int number) {
  ModuleKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  key.bytes.back() = 1;
  return key;
}

inline ModuleKey prefix_key(int number) { return ModuleKey::of_prefix(key_of(number).bytes); }

// 64 bytes a token: two layers, one head of four fp32 numbers.
inline constexpr KvGeometry kTinyGeometry{
    .layers = 2, .kv_heads = 1, .head_dim = 4, .format = kernels::KvFormat::kFp32};
inline constexpr std::size_t kTokenBytes = 64;

struct Evicted {
  EvictionReason reason;
  std::size_t bytes;
  friend bool operator==(const Evicted&, const Evicted&) = default;
};

// A pool of `capacity_tokens` with blocks of four tokens.
struct PoolFixture {
  explicit PoolFixture(std::int64_t capacity_tokens, bool poison = false, EvictionKind eviction = EvictionKind::kCost) {
    ModulePool::Options options;
    options.capacity_bytes = kTinyGeometry.bytes(capacity_tokens);
    options.block_tokens = 4;
    options.poison = poison;
    options.eviction = eviction;
    options.on_evict = [this](EvictionReason reason, std::size_t bytes) { evicted.push_back({reason, bytes}); };
    options.now = [this] { return now; };
    pool = std::make_unique<ModulePool>(options, kTinyGeometry, std::make_unique<CountingAllocator>(log));
  }

  // Creates and publishes a module of `tokens` tokens. The pin may be dropped at once.
  ModulePin add(int number, std::int32_t tokens, const Retention& retention = {}, double recompute_seconds = 0) {
    Result<ModulePin> pin = pool->create(key_of(number), tokens, 0, retention);
    if (!pin) {
      return {};
    }
    pool->publish(*pin, {recompute_seconds, 0});
    return std::move(pin).value();
  }
  void advance(double seconds) {
    now += std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  }

  std::chrono::steady_clock::time_point now{};
  std::vector<Evicted> evicted;
  std::shared_ptr<AllocatorLog> log = std::make_shared<AllocatorLog>();
  std::unique_ptr<ModulePool> pool;
};

}  // namespace promptcached::kv
