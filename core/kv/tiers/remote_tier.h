// RemoteTier: modules in one store that several servers share, so that one encodes for all.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/kv/tiers/circuit_breaker.h"
#include "core/kv/tiers/remote_store.h"
#include "core/kv/tiers/tier.h"
#include "core/kv/tiers/tier_index.h"

namespace promptcached::kv {

// A value is a whole record as kv_record.h describes, under a name made of its module's key. The store itself decides
// how much it keeps and what it drops; this tier has no budget. When it stops answering it is left alone for a while,
// and what it may hold counts as missing.
class RemoteTier final : public Tier {
 public:
  struct Options {
    RecordIdentity identity;
    CircuitBreaker::Options breaker;
  };
  RemoteTier(const Options& options, std::unique_ptr<RemoteStore> store);

  TierName name() const override { return TierName::kRemote; }
  bool has(const ModuleKey& key) const override;
  bool may_have(const ModuleKey& key) const override;
  LoadOutcome load(DeviceSink& sink) override;
  void prefetch(const ModuleKey& key) override;
  StoreOutcome store(RecordSource& source) override;
  void remove(const ModuleKey& key) override;
  void set_retention(const ModuleKey& key, const Retention& retention) override;
  void touch(const ModuleKey& key) override;
  std::vector<ModuleKey> expired() const override;
  std::size_t drop_unpinned() override;
  TierStats stats() const override;
  std::vector<ModuleInfo> list() const override;

 private:
  struct Nothing {};
  // A value, or that there is none.
  using Fetched = std::shared_ptr<Result<std::optional<RemoteValue>>>;
  struct Ahead {
    std::shared_future<Fetched> value;
    std::chrono::steady_clock::time_point since;
  };

  Fetched fetch(const ModuleKey& key);
  std::optional<std::shared_future<Fetched>> take_ahead(const ModuleKey& key);
  LoadOutcome read(std::span<const std::byte> value, DeviceSink& sink);
  void know(const RecordHeader& header, std::size_t bytes);
  void forget(const ModuleKey& key);
  bool answered(const Status& status);

  const Options options_;
  const std::unique_ptr<RemoteStore> store_;
  CircuitBreaker breaker_;
  mutable std::mutex mutex_;  // guards what follows; held for no call of the store
  TierIndex<Nothing> index_;  // what this server has written or found
  std::unordered_map<ModuleKey, Ahead, ModuleKeyHash> ahead_;
};

}  // namespace promptcached::kv
