// EncodeJob: one encoding pass on its way into memory. Private to ModuleEncoder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/engine/batch_builder.h"
#include "core/engine/generate_request.h"
#include "core/engine/schema_version.h"
#include "core/kv/module_pool.h"

namespace promptcached::engine {

// A module on the device, and how it came there for whom it is given to.
struct AcquiredModule {
  kv::ModulePin pin;
  SourceLabel source = SourceLabel::kComputed;
};

// KV that one request alone computes and reads (`cache: bypass`). Freed with the request.
struct PrivateKv {
  std::map<pml::EntryIndex, kv::ModulePin> entries;
};

// How many placeholders a module's slots have.
std::int32_t placeholder_count(const pml::Module& module);
// How many tokens' KV of an entry is kept. Placeholders are read by later passes in contextual mode alone.
std::int32_t kept_tokens(const pml::Schema& schema, pml::EntryIndex entry);

// KV of an entry as the pass reads or writes it.
struct EncodePart {
  pml::EntryIndex entry = 0;
  kv::ModulePin pin;
  model::KvArray text;
  model::KvArray placeholders;  // the same array in contextual mode, scratch otherwise, empty when not visible
  std::int32_t placeholder_offset = 0;
  std::int32_t limit = 0;  // context: only tokens below this position are seen
  bool is_new = false;     // an output computed by this job
  SourceLabel source = SourceLabel::kComputed;
};

// One encoding pass on its way into memory.
struct EncodeJob {
  struct Row {
    TokenId token = 0;
    std::int32_t position = 0;
    model::KvArray kv;
    std::int32_t offset = 0;
  };
  struct Waiter {
    pml::EntryIndex entry = 0;  // of this job's version
    std::weak_ptr<void> owner;
    std::function<void(Result<AcquiredModule>)> ready;  // see ModuleEncoder::Ready
  };

  std::shared_ptr<const SchemaVersion> version;
  int pass = 0;
  std::shared_ptr<PrivateKv> private_kv;
  bool background = false;
  std::vector<Waiter> waiters;
  std::weak_ptr<EncodeJob> self;

  std::vector<EncodePart> context;
  std::vector<EncodePart> outputs;
  kv::ModulePin scratch;             // placeholders' KV where nobody keeps it
  int pending = 0;                   // entries that other jobs are computing for this one
  int loading = 0;                   // entries on their way from a lower tier
  std::set<pml::EntryIndex> sought;  // below the device, once each
  std::optional<Error> failure;
  bool active = false;

  std::vector<Row> rows;
  std::size_t done_rows = 0;
  std::size_t step_rows = 0;  // of the batch being run
  double seconds = 0;         // its share of the steps it was in: what its rows cost to compute
  Clock::time_point began;

  bool finished() const { return active && done_rows == rows.size(); }
  const pml::Schema& schema() const { return *version->schema; }
  const pml::EncodingPass& encoding() const { return schema().passes[static_cast<std::size_t>(pass)]; }
  const pml::Module& module_of(pml::EntryIndex entry) const {
    const pml::Entry& found = schema().entries[static_cast<std::size_t>(entry)];
    return schema().modules[static_cast<std::size_t>(found.module)];
  }
  bool keeps_placeholders() const { return schema().attention == pml::AttentionMode::kContextual; }
  EncodePart* find_part(pml::EntryIndex entry);
  bool satisfied();  // whoever waits for it has it
  // The pass's new tokens in position order, each with the place its K and V go to, into `rows`.
  void list_rows();
  // All KV in memory that the next rows may see: context, entries that were resident, and the job's own earlier chunks.
  std::vector<PlacedRange> visible_ranges() const;

  // Resident KV, for a context entry or an output that was there already. Empty modules have an empty pin.
  static void attach(EncodePart& part, kv::ModulePin pin);
};

}  // namespace promptcached::engine
