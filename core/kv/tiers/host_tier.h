// HostTier: modules in the computer's own memory, in the compact form of the codec.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/kv/kv_memory.h"
#include "core/kv/tiers/indexed_tier.h"

namespace promptcached::kv {

// A record in the host's memory, and the memory; its bytes count as used as long as anyone holds it.
class HostRecord;

// A module that is loaded to the device leaves this tier: two copies of one module in the same memory help nobody.
class HostTier final : public IndexedTier<std::shared_ptr<const HostRecord>> {
 public:
  struct Options {
    std::size_t capacity_bytes = 0;
    EvictionKind eviction = EvictionKind::kCost;
    // Asked for each entry that has to make room, before it goes: where its last copy could be saved. No lock is held.
    std::function<void(RecordSource&)> on_evict;
  };
  // `memory` is where records lie; on CUDA it is pinned.
  HostTier(const Options& options, std::unique_ptr<KvAllocator> memory);
  ~HostTier() override;

  TierLabel name() const override { return TierLabel::kHost; }
  LoadOutcome load(DeviceSink& sink) override;
  StoreOutcome store(RecordSource& source) override;
  void remove(const ModuleKey& key) override;
  std::unique_ptr<RecordSource> source(const ModuleKey& key) const override;

 private:
  friend class HostRecord;
  class Source;
  using Value = std::shared_ptr<const HostRecord>;

  bool reserve(std::size_t bytes);
  std::byte* shrink(std::byte* data, std::size_t reserved, std::size_t bytes);
  void give_back(std::size_t bytes);

  const Options options_;
  const std::unique_ptr<KvAllocator> memory_;
  std::size_t reserved_bytes_ = 0;  // of all records, also those that are being written or read and in no index
};

}  // namespace promptcached::kv
