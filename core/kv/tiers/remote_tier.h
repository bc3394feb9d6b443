// RemoteTier: modules in one store that several servers share, so that one encodes for all.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>

#include "core/kv/tiers/circuit_breaker.h"
#include "core/kv/tiers/indexed_tier.h"
#include "core/kv/tiers/remote_store.h"

namespace promptcached::kv {

// A value is a whole record as kv_record.h describes, under a name made of its module's key. The store itself decides
// how much it keeps and what it drops; this tier has no budget. When it stops answering it is left alone for a while,
// and what it may hold counts as missing. Its index is of what this server has written or found.
class RemoteTier final : public IndexedTier<std::monostate> {
 public:
  struct Options {
    RecordIdentity identity;
    CircuitBreaker::Options breaker;
  };
  RemoteTier(const Options& options, std::unique_ptr<RemoteStore> store);

  TierLabel name() const override { return TierLabel::kRemote; }
  bool may_have(const ModuleKey& key) const override;
  LoadOutcome load(DeviceSink& sink) override;
  void prefetch(const ModuleKey& key) override;
  StoreOutcome store(RecordSource& source) override;
  void remove(const ModuleKey& key) override;

 private:
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
  bool answered(const Status& status);

  const Options options_;
  const std::unique_ptr<RemoteStore> store_;
  CircuitBreaker breaker_;
  std::unordered_map<ModuleKey, Ahead, ModuleKeyHash> ahead_;
};

}  // namespace promptcached::kv
