// ModuleEncoder: gets modules' KV onto the device, as background work in the engine's steps.
//
// A module that is asked for and not resident becomes a job. The job first has the tiers below the device looked
// through, where they may have it and loading is cheaper than computing. What is found nowhere is encoded: one forward
// pass over its tokens (schema.h, EncodingPass), in chunks, beside whatever else runs. However many ask, it is loaded
// or encoded once. What a pass attends to (root text, ancestors, a scaffold's earlier members) is pinned first, by the
// same way.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/engine/batch_builder.h"
#include "core/engine/encode_job.h"
#include "core/engine/generate_request.h"
#include "core/engine/schema_version.h"
#include "core/engine/step_price.h"
#include "core/kv/module_pool.h"
#include "core/kv/tier_mover.h"

namespace promptcached::engine {

class ModuleEncoder {
 public:
  // How long a key's KV is to be kept; nullopt when no registered schema uses it any more, so that it is not kept.
  using RetentionLookup = std::function<std::optional<kv::Retention>(const kv::ModuleKey&)>;
  // Called on the engine thread when the entry is there, or cannot be.
  using Ready = std::function<void(Result<AcquiredModule>)>;

  struct Want {
    std::shared_ptr<const SchemaVersion> version;
    pml::EntryIndex entry = 0;
    std::shared_ptr<PrivateKv> private_kv;  // null: shared through the pool
    bool background = false;                // registration: yields to requests
    std::weak_ptr<void> owner;              // once it is gone nobody waits for this any more
    Ready ready;
  };

  ModuleEncoder(kv::ModulePool& pool, kv::TierMover& tiers, Metrics& metrics, RetentionLookup retention);
  ~ModuleEncoder();

  // A pin at once when the entry is resident; else nullopt, and `want.ready` is called in a later step.
  std::optional<kv::ModulePin> acquire(Want want);

  // Whether a registered schema uses the key's KV (still).
  bool is_used(const kv::ModuleKey& key) const { return retention_(key).has_value(); }

  // Adds up to `rows` rows of jobs to the batch being built; background jobs get at most `background_rows` of them.
  void fill(BatchBuilder& builder, std::int32_t rows, std::int32_t background_rows);
  // The batch ran.
  void step_done(double seconds_per_row);
  // The batch failed: its job fails with `error`; of several jobs each is run alone from now on, to find the one at
  // fault.
  void step_failed(const Error& error);
  // The batch is not run after all.
  void step_abandoned();
  // Takes what was loaded, publishes finished jobs and tells waiters, of failures too. Returns whether there were any.
  bool settle();
  const kv::TierMover& tiers() const { return tiers_; }
  StepPrice& price() { return price_; }

  bool has_work() const { return !jobs_.empty(); }
  bool has_foreground_work() const;
  // The first job in line needs memory that is pinned or in use. While that holds, nothing new should take memory.
  bool starved() const { return starved_; }
  bool foreground_starved() const { return starved_ && has_foreground_work(); }
  // Gives up on the job that starves, when nothing will ever free memory for it.
  void fail_starved();
  void fail_all(const Error& error);

 private:
  enum class Activation { kActive, kWaiting, kNoMemory, kGone };

  std::shared_ptr<EncodeJob> find_job(const Want& want) const;
  std::shared_ptr<EncodeJob> add_job(const Want& want);
  static std::int32_t add_rows(BatchBuilder& builder, EncodeJob& job, std::int32_t budget);
  void begin_loads();
  Activation activate(EncodeJob& job);
  Activation seek(EncodeJob& job);
  Activation seek_entry(EncodeJob& job, pml::EntryIndex entry);
  void loaded(const std::weak_ptr<EncodeJob>& job, pml::EntryIndex entry, kv::TierMover::Loaded loaded);
  Activation gather_context(EncodeJob& job);
  Activation gather_outputs(EncodeJob& job);
  Result<EncodePart> make_output(const EncodeJob& job, pml::EntryIndex entry);
  Activation cannot_reserve(EncodeJob& job, pml::EntryIndex entry, const Error& error);
  Activation want_for_job(EncodeJob& job, pml::EntryIndex entry);
  void finish(EncodeJob& job);
  void fail(EncodeJob& job, const Error& error);
  void drop_unwanted();

  kv::ModulePool& pool_;
  kv::TierMover& tiers_;
  Metrics& metrics_;
  RetentionLookup retention_;
  StepPrice price_;
  std::list<std::shared_ptr<EncodeJob>> jobs_;  // in line; foreground ones are served first
  std::vector<std::shared_ptr<EncodeJob>> in_step_;
  bool starved_ = false;
  bool one_at_a_time_ = false;  // after a failed batch of several jobs
};

}  // namespace promptcached::engine
