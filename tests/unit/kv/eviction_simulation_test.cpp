// What eviction is for: seconds not spent recomputing. Three traces, the same on every machine, under both policies.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/kv/eviction_policy.h"
#include "core/kv/module_pool.h"
#include "tests/catch.h"

namespace promptcached::kv {
namespace {

constexpr std::size_t kModules = 300;
constexpr std::size_t kRequests = 30'000;

// splitmix64: the library's distributions differ between implementations, and a trace must not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

struct Module {
  std::size_t bytes = 0;
  double seconds = 0;  // to recompute
};

// 64 to 8,192 tokens, as many between 64 and 128 as between 4,096 and 8,192. A token takes 22.5 KiB and a millisecond,
// and as much again for attention where the module is 4,000 tokens long; every encoding takes one step of 12 ms at
// least, however short.
std::vector<Module> make_modules() {
  Random random(1);
  std::vector<Module> modules(kModules);
  for (Module& module : modules) {
    const double tokens = std::floor(std::exp2(6 + 7 * random.uniform()));
    module.bytes = static_cast<std::size_t>(tokens) * 23'040;
    module.seconds = 0.012 + tokens * 0.001 * (1 + tokens / 4000);
  }
  return modules;
}

// Ranks drawn with probability ~ 1 / rank.
class Zipf {
 public:
  explicit Zipf(std::size_t count) {
    double sum = 0;
    for (std::size_t rank = 1; rank <= count; ++rank) {
      sum += 1.0 / static_cast<double>(rank);
      sums_.push_back(sum);
    }
  }
  std::size_t operator()(Random& random) const {
    const double at = random.uniform() * sums_.back();
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
    return std::min(static_cast<std::size_t>(found - sums_.begin()), sums_.size() - 1);
  }

 private:
  std::vector<double> sums_;
};

std::vector<std::size_t> shuffled(Random& random) {
  std::vector<std::size_t> order(kModules);
  for (std::size_t i = 0; i < kModules; ++i) {
    order[i] = i;
    std::swap(order[i], order[random.below(i + 1)]);
  }
  return order;
}

using Trace = std::vector<std::size_t>;  // modules in the order in which they are wanted

Trace zipf_trace() {
  Random random(2);
  const std::vector<std::size_t> order = shuffled(random);
  const Zipf zipf(kModules);
  Trace trace(kRequests);
  for (std::size_t& module : trace) {
    module = order[zipf(random)];
  }
  return trace;
}

// A fifth of the modules is in use; one request in three goes through all the others, one after the other.
Trace scan_trace() {
  Random random(3);
  const std::vector<std::size_t> order = shuffled(random);
  constexpr std::size_t kPopular = kModules / 5;
  const Zipf zipf(kPopular);
  std::size_t scanned = 0;
  Trace trace(kRequests);
  for (std::size_t i = 0; i < kRequests; ++i) {
    trace[i] = i % 3 == 2 ? order[kPopular + scanned++ % (kModules - kPopular)] : order[zipf(random)];
  }
  return trace;
}

// The popular ones are others after every 3,000 requests.
Trace shift_trace() {
  Random random(4);
  const Zipf zipf(kModules);
  std::vector<std::size_t> order;
  Trace trace(kRequests);
  for (std::size_t i = 0; i < kRequests; ++i) {
    if (i % 3000 == 0) {
      order = shuffled(random);
    }
    trace[i] = order[zipf(random)];
  }
  return trace;
}

struct Saved {
  double seconds = 0;
  double of_seconds = 0;  // what it would take without a cache
};

// A tier as simple as can be: what does not fit beside the rest evicts until it does. What comes back is a new entry.
// `room`: what part of all modules' bytes fits.
Saved simulate(const Trace& trace, const std::vector<Module>& modules, double room, EvictionKind kind) {
  std::size_t all_bytes = 0;
  for (const Module& module : modules) {
    all_bytes += module.bytes;
  }
  const auto capacity = static_cast<std::size_t>(static_cast<double>(all_bytes) * room);
  EvictionPolicy policy(kind);
  std::vector<EvictionItem> items(modules.size());
  Saved saved;
  for (const std::size_t wanted : trace) {
    EvictionItem& item = items[wanted];
    const Module& module = modules[wanted];
    saved.of_seconds += module.seconds;
    if (policy.contains(item)) {
      saved.seconds += module.seconds;
    } else {
      while (policy.bytes() + module.bytes > capacity) {
        policy.remove(policy.next());
      }
      item = {.bytes = module.bytes, .recompute_seconds = module.seconds};
    }
    policy.count_use(item);
    policy.add(item);
  }
  return saved;
}

TEST_CASE("the default eviction saves more seconds than LRU", "[kv][eviction]") {
  struct Named {
    const char* name;
    Trace trace;
  };
  const std::vector<Module> modules = make_modules();
  double cost_sum = 0;
  double lru_sum = 0;
  for (const Named& named : {Named{"zipf", zipf_trace()}, {"scan", scan_trace()}, {"shift", shift_trace()}}) {
    for (const double room : {0.05, 0.15, 0.5}) {
      const Saved cost = simulate(named.trace, modules, room, ModulePool::Options().eviction);
      const Saved lru = simulate(named.trace, modules, room, EvictionKind::kLru);
      std::printf("eviction, %-5s, room for %2.0f %%: of %6.0f s, LRU saves %6.0f s, the default %6.0f s (%+.1f %%)\n",
                  named.name, 100 * room, cost.of_seconds, lru.seconds, cost.seconds,
                  100 * (cost.seconds / lru.seconds - 1));
      INFO(named.name << ", " << room << ": " << cost.seconds << " s against " << lru.seconds << " s");
      CHECK(cost.seconds > 0.98 * lru.seconds);
      cost_sum += cost.seconds;
      lru_sum += lru.seconds;
    }
  }
  std::printf("eviction: LRU saves %.0f s, the default %.0f s (%+.1f %%)\n", lru_sum, cost_sum,
              100 * (cost_sum / lru_sum - 1));
  CHECK(cost_sum > 1.05 * lru_sum);
}

}  // namespace
}  // namespace promptcached::kv
