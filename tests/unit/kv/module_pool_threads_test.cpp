// Many threads on one pool. What this test is worth, it is worth under ThreadSanitizer.
#include <atomic>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/kv/module_pool.h"
#include "core/kv/sequence_cache.h"
#include "tests/catch.h"
#include "tests/unit/kv/pool_fixture.h"

namespace promptcached::kv {
namespace {

constexpr int kKeys = 16;
constexpr int kRounds = 2000;
constexpr std::int32_t kModuleTokens = 8;

// A module holds its key's number in every byte, written by its encoder before it is published.
bool holds(const ModuleKv& kv, int key) {
  const auto mark = static_cast<std::byte>(key);
  return kv.data[0] == mark && kv.data[kModuleTokens * kTokenBytes - 1] == mark;
}

void use_modules(ModulePool& pool, unsigned seed, std::atomic<int>& faults) {
  std::mt19937 random(seed);
  std::vector<ModulePin> kept;
  for (int round = 0; round < kRounds; ++round) {
    const int key = static_cast<int>(random() % kKeys) + 1;
    if (auto pin = pool.pin(key_of(key))) {
      faults += holds(pin->kv(), key) ? 0 : 1;
      kept.push_back(pin->duplicate());
    } else if (auto created = pool.create(key_of(key), kModuleTokens, 0, {}); created.ok()) {
      std::memset(created->kv().data, key, kModuleTokens * kTokenBytes);
      pool.publish(*created);
      faults += holds(created->kv(), key) ? 0 : 1;
    }
    if (kept.size() > 3) {
      kept.erase(kept.begin());
    }
  }
}

void use_blocks(ModulePool& pool, unsigned seed) {
  std::mt19937 random(seed);
  SequenceCache sequence(pool);
  for (int round = 0; round < kRounds; ++round) {
    if (sequence.reserve(static_cast<std::int32_t>(random() % 20)).ok()) {
      for (const SequenceCache::Block& block : sequence.blocks()) {
        std::memset(block.data(), 0x55, 4 * kTokenBytes);
      }
    }
    if (random() % 4 == 0) {
      sequence.clear();
    }
  }
}

void administrate(ModulePool& pool, std::atomic<bool>& stop, std::atomic<int>& faults) {
  std::mt19937 random(7);
  while (!stop) {
    const PoolStats stats = pool.stats();
    faults += stats.module_bytes + stats.block_bytes + stats.free_bytes == stats.capacity_bytes ? 0 : 1;
    faults += stats.pinned_bytes <= stats.module_bytes ? 0 : 1;
    faults += pool.check_integrity() ? 0 : 1;
    const ModuleKey key = key_of(static_cast<int>(random() % kKeys) + 1);
    pool.set_retention(key, {.pin = random() % 4 == 0, .priority = static_cast<int>(random() % 3)});
    if (random() % 8 == 0) {
      pool.remove(key);
    }
    faults += pool.list().size() <= kKeys ? 0 : 1;
    std::this_thread::yield();
  }
}

TEST_CASE("threads may use one pool at the same time", "[kv][threads]") {
  const auto log = std::make_shared<AllocatorLog>();
  std::atomic<std::size_t> evicted{0};
  ModulePool::Options options;
  options.capacity_bytes = kTinyGeometry.bytes(120);
  options.block_tokens = 4;
  options.poison = true;
  options.on_evict = [&evicted](EvictionReason, std::size_t bytes) { evicted += bytes; };
  ModulePool pool(options, kTinyGeometry, std::make_unique<CountingAllocator>(log));
  std::atomic<bool> stop{false};
  std::atomic<int> faults{0};
  std::vector<std::thread> workers;
  workers.reserve(4);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    workers.emplace_back([&pool, &faults, seed] { use_modules(pool, seed, faults); });
  }
  workers.emplace_back([&pool] { use_blocks(pool, 99); });
  std::thread administrator([&] { administrate(pool, stop, faults); });
  for (std::thread& worker : workers) {
    worker.join();
  }
  stop = true;
  administrator.join();
  CHECK(faults == 0);
  CHECK(evicted > 0);
  CHECK(pool.check_integrity());
  CHECK(pool.stats().block_bytes == 0);
  CHECK(log->peak_bytes <= options.capacity_bytes);
  CHECK(log->faults == 0);
}

}  // namespace
}  // namespace promptcached::kv
