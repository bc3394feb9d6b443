// IndexedTier: what all tiers do with what they know of their entries. Private to core/kv/tiers.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

#include "core/kv/tiers/tier.h"
#include "core/kv/tiers/tier_index.h"

namespace promptcached::kv {

// A TierIndex under a lock. `Value` is what a tier keeps with each entry.
template <typename Value>
class IndexedTier : public Tier {
 public:
  bool has(const ModuleKey& key) const override {
    const std::lock_guard lock(mutex_);
    return index_.contains(key);
  }
  void set_retention(const ModuleKey& key, const Retention& retention) override {
    const std::lock_guard lock(mutex_);
    if (auto* const entry = index_.find(key)) {
      index_.set_retention(*entry, retention);
    }
  }
  void touch(const ModuleKey& key) override { use(key); }
  std::vector<ModuleKey> expired() const override {
    const std::lock_guard lock(mutex_);
    return index_.expired(std::chrono::system_clock::now());
  }
  std::size_t drop_unpinned() override {
    std::size_t bytes = 0;
    for (;;) {
      ModuleKey key;
      {
        const std::lock_guard lock(mutex_);
        auto* const entry = index_.next_to_go();
        if (entry == nullptr) {
          return bytes;
        }
        key = entry->key;
        bytes += entry->bytes;
      }
      remove(key);
    }
  }
  TierStats stats() const override {
    const std::lock_guard lock(mutex_);
    return index_.stats(capacity_bytes_);
  }
  std::vector<ModuleInfo> list() const override {
    const std::lock_guard lock(mutex_);
    return index_.list(std::chrono::system_clock::now());
  }

 protected:
  IndexedTier(std::size_t capacity_bytes, EvictionKind eviction) : capacity_bytes_(capacity_bytes), index_(eviction) {}

  // Whether there is such an entry, which was used now.
  bool use(const ModuleKey& key) {
    const std::lock_guard lock(mutex_);
    auto* const entry = index_.find(key);
    if (entry != nullptr) {
      index_.use(*entry, std::chrono::system_clock::now());
    }
    return entry != nullptr;
  }
  // Takes the entry out, if there is one. Its value goes without the lock, which a value's end may take.
  Value forget(const ModuleKey& key) {
    const std::lock_guard lock(mutex_);
    auto* const entry = index_.find(key);
    return entry == nullptr ? Value{} : index_.take(*entry);
  }

  const std::size_t capacity_bytes_;  // 0: no limit of ours
  mutable std::mutex mutex_;          // guards what follows, and what the tier adds; held while no medium works
  TierIndex<Value> index_;
};

}  // namespace promptcached::kv
