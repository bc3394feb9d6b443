// Forecast: what would become of a request that came now, without doing any of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/engine/generate_request.h"
#include "core/engine/token_stream.h"
#include "core/kv/module_pool.h"
#include "core/kv/tier_mover.h"

namespace promptcached::engine {

class PrefixCache;
class Scheduler;
class Sequence;
class StepPrice;

struct Forecast {
  Usage usage;                       // as the start event would have it
  std::vector<CachePartInfo> cache;  // likewise
  std::int64_t encode_tokens = 0;    // of modules that are not there, and of what these are encoded with
  std::optional<Timing> timing;      // up to the first token; nullopt: nothing has been computed yet to measure by
};

// Engine thread only; for one forecast.
class Forecaster final {
 public:
  Forecaster(const kv::ModulePool& pool, const kv::TierMover& tiers, PrefixCache& prefixes, const Scheduler& scheduler,
             const StepPrice& price);

  // `sequence` is not to run. Modules that only other servers are known to have had are taken for missing.
  Forecast run(Sequence& sequence);

 private:
  struct Work {
    std::int64_t rows = 0;
    std::int64_t keys = 0;  // that these look at
    void add(std::int64_t more, std::int64_t seen);
  };
  SourceLabel place(const GenerateRequest& request, pml::EntryIndex entry);
  void add_encoding(const GenerateRequest& request, int pass);
  Timing timing(const Work& own) const;

  const kv::ModulePool& pool_;
  const kv::TierMover& tiers_;
  PrefixCache& prefixes_;
  const Scheduler& scheduler_;
  const StepPrice& price_;
  std::map<pml::EntryIndex, SourceLabel> places_;  // of what was asked for so far
  std::set<int> passes_;                           // to be run
  Work encoding_;
  double load_seconds_ = 0;  // one after the other
};

}  // namespace promptcached::engine
