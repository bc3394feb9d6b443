// HostTier: modules in the computer's own memory, in the compact form of the codec.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/kv/kv_memory.h"
#include "core/kv/tiers/tier.h"
#include "core/kv/tiers/tier_index.h"

namespace promptcached::kv {

// A module that is loaded to the device leaves this tier: two copies of one module in the same memory help nobody.
class HostTier final : public Tier {
 public:
  struct Options {
    std::size_t capacity_bytes = 0;
    EvictionKind eviction = EvictionKind::kCost;
    // Asked for each entry that has to make room, before it goes: where its last copy could be saved. No lock is held.
    std::function<void(RecordSource&)> on_evict;
  };
  // `memory` is where records lie; on CUDA it is pinned.
  HostTier(const Options& options, std::unique_ptr<KvAllocator> memory);

  TierName name() const override { return TierName::kHost; }
  bool has(const ModuleKey& key) const override;
  LoadOutcome load(DeviceSink& sink) override;
  StoreOutcome store(RecordSource& source) override;
  void remove(const ModuleKey& key) override;
  std::unique_ptr<RecordSource> source(const ModuleKey& key) const override;
  void set_retention(const ModuleKey& key, const Retention& retention) override;
  void touch(const ModuleKey& key) override;
  std::vector<ModuleKey> expired() const override;
  std::size_t drop_unpinned() override;
  TierStats stats() const override;
  std::vector<ModuleInfo> list() const override;

 private:
  // A record and its memory; its bytes count as used as long as anyone holds it.
  class Record;
  class Source;
  using Value = std::shared_ptr<const Record>;

  bool reserve(std::size_t bytes);
  std::byte* shrink(std::byte* data, std::size_t reserved, std::size_t bytes);
  void give_back(std::size_t bytes);

  const Options options_;
  const std::unique_ptr<KvAllocator> memory_;
  mutable std::mutex mutex_;  // guards what follows: the mover's threads come and go
  TierIndex<Value> index_;
  std::size_t reserved_bytes_ = 0;  // of all records, also those that are being written or read and in no index
};

}  // namespace promptcached::kv
