// TierMover: carries modules between the device and the tiers below it, on threads of its own.
//
// Four ways lead through it. A module that is asked for and not on the device is loaded from the nearest tier that has
// it. One that is evicted from the device leaves for the host tier. A newly encoded one is written through to disk and
// remote store. What no schema uses any more, or has outlived its ttl, is removed everywhere. Whatever a tier does
// wrong is a miss and a metric; nothing here fails a request.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/metrics.h"
#include "core/kv/kv_record.h"
#include "core/kv/module_pool.h"
#include "core/kv/tiers/tier.h"
#include "core/kv/transfer_cost.h"

namespace promptcached::kv {

// Thread-safe, but for deliver().
class TierMover final {
 public:
  struct Options {
    std::vector<std::unique_ptr<Tier>> tiers;  // from the nearest to the farthest; none: nothing is kept below
    RecordIdentity identity;
    KvCodec codec;
    int threads = 4;
    // How long a module is to be kept; nullopt: no schema uses it, so that it is not kept. Called without locks.
    std::function<std::optional<Retention>(const ModuleKey&)> retention;
    std::function<void()> wake;  // something waits for deliver(), or memory has become free; on the mover's threads
  };
  struct Loaded {
    ModulePin pin;                  // the destination, filled when `tier` is there
    std::optional<TierLabel> tier;  // where it came from
    ModuleWorth worth;              // as its record says
  };
  using Done = std::function<void(Loaded)>;

  TierMover(Options options, ModulePool& pool, Metrics& metrics);
  ~TierMover();
  TierMover(const TierMover&) = delete;
  TierMover& operator=(const TierMover&) = delete;

  // What has begun ends, what is in line is dropped; nothing is called any more.
  void stop();

  // How many loads may run at once.
  int threads() const { return options_.threads; }
  bool has_tiers() const { return !options_.tiers.empty(); }

  // Whether a tier may have the module, and can be expected to give it sooner than it is computed (0: unknown).
  bool worth_loading(const ModuleKey& key, std::size_t bytes, double recompute_seconds);
  // Where it would be loaded from, and how long that may take; nullopt when it would be computed.
  struct Foreseen {
    TierLabel tier;
    double seconds;
  };
  std::optional<Foreseen> foresee(const ModuleKey& key, std::size_t bytes, double recompute_seconds) const;
  // A request that waits will want it: keeps it where it is, and brings it nearer while the engine is at something
  // else.
  void prefetch(const ModuleKey& key);
  // Fills `destination`, which was created under the module's key and is not published; `done` is called by deliver().
  // Urgent ones come first.
  void load(ModulePin destination, bool urgent, Done done);
  // Takes a module that was evicted (ModulePool::Options::on_leave), if keeps() says so.
  bool keeps(const ModuleKey& key) const;
  void take_leaving(ModulePin pin);
  // What the host tier has no room for any more (HostTier::Options::on_evict).
  void take_from_host(RecordSource& source);
  // Writes a module that was encoded to the tiers that outlive the process, when there is time.
  void write_through(const ModuleKey& key);

  void remove(const ModuleKey& key);  // soon, if no schema uses it then
  void set_retention(const ModuleKey& key, const Retention& retention);
  void drop_expired();  // soon
  std::size_t drop_unpinned(TierLabel tier);

  // Engine thread: calls what waits for ended loads. Returns whether there were any.
  bool deliver();
  // Whether modules are being carried, or held to be copied: that will end with a wake().
  bool busy() const;
  // Grows whenever something has ended, so that memory may have become free.
  std::uint64_t changes() const;
  // Waits until nothing is in line any more, at most so long.
  bool flush(std::chrono::milliseconds grace);

  const Tier* tier(TierLabel name) const;
  // The nearest tier that has it.
  std::optional<TierLabel> find(const ModuleKey& key) const;

 private:
  struct Task {
    enum class Kind { kLoad, kPrefetch, kLeave, kWriteThrough, kRemove, kPurge };
    Kind kind = Kind::kPurge;
    ModuleKey key{};
    ModulePin pin{};
    Done done{};
  };

  void add(Task task, bool urgent);
  void work(bool urgent_only);
  void run(Task& task);
  void run_load(Task& task);
  void run_prefetch(const ModuleKey& key);
  void run_leave(Task& task);
  void run_write_through(const ModuleKey& key);
  void run_remove(const ModuleKey& key);
  void run_purge();
  LoadOutcome load_from(Tier& tier, const ModulePin& pin, ModuleWorth& worth);
  bool store_in(Tier& tier, RecordSource& source, TierLabel from);
  std::unique_ptr<RecordSource> source_of(const ModuleKey& key, TierLabel& from);
  RecordHeader header_for(const ModulePin& pin) const;
  TransferCost& cost_of(const Tier& tier) { return costs_.at(tier.name()); }

  const Options options_;
  ModulePool& pool_;
  Metrics& metrics_;
  std::map<TierLabel, TransferCost> costs_;  // of every tier, from the start

  mutable std::mutex mutex_;  // guards what follows: tasks come from the engine's and HTTP threads
  std::condition_variable work_;
  std::condition_variable idle_;
  std::deque<Task> urgent_;
  std::deque<Task> background_;
  std::vector<std::pair<Done, Loaded>> ended_;
  int under_way_ = 0;  // loads and departures, in line or begun, and copies that have begun
  std::uint64_t changes_ = 0;
  int begun_ = 0;  // tasks of all kinds
  bool purge_waits_ = false;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace promptcached::kv
