// Tier: a place below the device where modules' KV is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/metrics.h"
#include "core/kv/kv_record.h"
#include "core/kv/module_key.h"
#include "core/kv/module_pool.h"

namespace promptcached::kv {

// From the nearest to the farthest.
inline constexpr TierLabel kTiersBelow[] = {TierLabel::kHost, TierLabel::kDisk, TierLabel::kRemote};

enum class LoadOutcome {
  kLoaded,
  kMissing,  // not there, or its time had run out
  kDamaged,  // it was there and of no use: it has been removed. The sink's memory holds nothing useful
  kFailed,   // the tier could not be asked
};
enum class StoreOutcome {
  kStored,  // or there already
  kNoRoom,  // too large, or the rest is pinned
  kFailed,  // the tier could not take it
};

struct TierStats {
  std::size_t capacity_bytes = 0;  // 0: no limit of ours
  std::size_t used_bytes = 0;
  std::size_t pinned_bytes = 0;  // of those
  std::int64_t entries = 0;      // modules
  std::int64_t prefix_entries = 0;
  std::size_t prefix_bytes = 0;  // of used_bytes
};

// Thread-safe. load(), prefetch(), store() and remove() may take as long as their medium does; the others never wait
// for one.
class Tier {
 public:
  virtual ~Tier() = default;
  virtual TierLabel name() const = 0;

  // Whether this process knows it to be there; and whether it is worth asking: a store that others write to as well may
  // have anything.
  virtual bool has(const ModuleKey& key) const = 0;
  virtual bool may_have(const ModuleKey& key) const { return has(key); }
  virtual LoadOutcome load(DeviceSink& sink) = 0;
  // It will be loaded soon: what can be fetched ahead is fetched. May take as long as load().
  virtual void prefetch(const ModuleKey&) {}
  // Makes room as its policy says. Nothing is visible before all of it is there.
  virtual StoreOutcome store(RecordSource& source) = 0;
  virtual void remove(const ModuleKey& key) = 0;
  // For copying to another tier, where that costs no reading; else, and when it is not there, nullptr.
  virtual std::unique_ptr<RecordSource> source(const ModuleKey&) const { return nullptr; }

  virtual void set_retention(const ModuleKey& key, const Retention& retention) = 0;
  // A copy above this one was used.
  virtual void touch(const ModuleKey& key) = 0;
  // Entries that can go by their ttl, should nobody have used them elsewhere.
  virtual std::vector<ModuleKey> expired() const = 0;

  virtual std::size_t drop_unpinned() = 0;  // bytes freed
  virtual TierStats stats() const = 0;
  virtual std::vector<ModuleInfo> list() const = 0;  // the modules that this process knows to be there
};

}  // namespace promptcached::kv
