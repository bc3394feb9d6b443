// The life of a module: created, published, pinned, removed.
#include "core/kv/module_pool.h"

#include <cmath>
#include <utility>

#include "tests/catch.h"
#include "tests/unit/kv/pool_fixture.h"

namespace promptcached::kv {
namespace {

TEST_CASE("a created module is found only once it is published", "[kv]") {
  PoolFixture f(100);
  Result<ModulePin> created = f.pool->create(key_of(1), 8, 2, {});
  REQUIRE(created);
  CHECK(created->kv().tokens == 8);
  CHECK(created->kv().extra_tokens == 2);
  CHECK(created->kv().total_tokens() == 10);
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK_FALSE(f.pool->pin(key_of(1)));
  CHECK_FALSE(f.pool->info(key_of(1)));
  CHECK(f.pool->list().empty());
  CHECK(f.pool->stats().entries == 0);
  CHECK(f.pool->stats().module_bytes == 10 * kTokenBytes);
  CHECK(f.pool->stats().pinned_bytes == 10 * kTokenBytes);

  f.pool->publish(*created);
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.pool->stats().entries == 1);
  const auto pin = f.pool->pin(key_of(1));
  REQUIRE(pin);
  CHECK(pin->kv().data == created->kv().data);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("publishing twice is publishing once", "[kv]") {
  PoolFixture f(100);
  const ModulePin pin = f.add(1, 8);
  f.pool->publish(pin);
  CHECK(f.pool->stats().entries == 1);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("an encoder that gives up leaves nothing behind", "[kv]") {
  PoolFixture f(100);
  {
    const Result<ModulePin> abandoned = f.pool->create(key_of(1), 8, 0, {});
    REQUIRE(abandoned);
  }
  CHECK(f.pool->stats().free_bytes == f.pool->stats().capacity_bytes);
  CHECK(f.log->live_bytes() == 0);
  CHECK(f.evicted.empty());  // it never was in the cache
  CHECK(f.add(1, 8));
  CHECK(f.pool->check_integrity());
}

TEST_CASE("a key can be created once, encoded or not", "[kv]") {
  PoolFixture f(100);
  Result<ModulePin> first = f.pool->create(key_of(1), 8, 0, {});
  REQUIRE(first);
  Result<ModulePin> second = f.pool->create(key_of(1), 8, 0, {});
  REQUIRE_FALSE(second);
  CHECK(second.error().code == ErrorCode::kConflict);
  f.pool->publish(*first);
  CHECK(f.pool->create(key_of(1), 8, 0, {}).error().code == ErrorCode::kConflict);
  CHECK(f.pool->stats().module_bytes == 8 * kTokenBytes);
}

TEST_CASE("pins count, move and duplicate", "[kv]") {
  PoolFixture f(100);
  f.add(1, 8);
  ModulePin a = *f.pool->pin(key_of(1));
  ModulePin b = a.duplicate();
  CHECK(f.pool->info(key_of(1))->pins == 2);
  CHECK(f.pool->info(key_of(1))->hits == 1);  // a duplicate is no use of its own
  ModulePin c = std::move(a);
  CHECK(f.pool->info(key_of(1))->pins == 2);
  c = std::move(b);
  CHECK(f.pool->info(key_of(1))->pins == 1);
  ModulePin& same = c;
  c = std::move(same);
  CHECK(c);
  CHECK(f.pool->info(key_of(1))->pins == 1);
  c.release();
  CHECK_FALSE(c);
  c.release();
  CHECK(f.pool->info(key_of(1))->pins == 0);
  CHECK_FALSE(ModulePin().duplicate());
  CHECK(f.pool->check_integrity());
}

TEST_CASE("a removed module lives as long as its pins", "[kv]") {
  PoolFixture f(100);
  f.add(1, 8);
  ModulePin pin = *f.pool->pin(key_of(1));
  ModulePin other = pin.duplicate();
  std::memset(pin.kv().data, 7, 8 * kTokenBytes);
  f.pool->remove(key_of(1), EvictionReason::kReplaced);
  CHECK(f.evicted == std::vector<Evicted>{{EvictionReason::kReplaced, 8 * kTokenBytes}});
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK(f.pool->stats().entries == 0);
  CHECK(f.pool->stats().module_bytes == 8 * kTokenBytes);
  CHECK(f.pool->stats().pinned_bytes == 8 * kTokenBytes);
  CHECK(f.pool->check_integrity());

  // The key is free again: replaced content lives beside the old.
  const ModulePin fresh = f.add(1, 8);
  REQUIRE(fresh);
  CHECK(fresh.kv().data != pin.kv().data);
  CHECK(pin.kv().data[100] == std::byte{7});
  pin.release();
  CHECK(f.pool->stats().module_bytes == 16 * kTokenBytes);
  other.release();
  CHECK(f.pool->stats().module_bytes == 8 * kTokenBytes);
  CHECK(f.log->live_bytes() == 8 * kTokenBytes);
  CHECK(f.evicted.size() == 1);
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.pool->check_integrity());
}

TEST_CASE("removing an unpinned module frees it now, pinned by retention or not", "[kv]") {
  PoolFixture f(100);
  f.add(1, 8, {.pin = true});
  f.pool->remove(key_of(1));
  CHECK(f.evicted == std::vector<Evicted>{{EvictionReason::kRequested, 8 * kTokenBytes}});
  CHECK(f.pool->stats().module_bytes == 0);
  f.pool->remove(key_of(1));  // not there: nothing happens
  CHECK(f.evicted.size() == 1);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("a module removed while it is encoded is not published", "[kv]") {
  PoolFixture f(100);
  Result<ModulePin> created = f.pool->create(key_of(1), 8, 0, {});
  REQUIRE(created);
  f.pool->remove(key_of(1));
  f.pool->publish(*created);
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK(f.pool->stats().entries == 0);
  CHECK(f.pool->check_integrity());
  created->release();
  CHECK(f.pool->stats().module_bytes == 0);
  CHECK(f.evicted.empty());
}

TEST_CASE("private KV is found by nobody and goes with its last pin", "[kv]") {
  PoolFixture f(100);
  Result<ModulePin> created = f.pool->create_private(8, 1);
  REQUIRE(created);
  f.pool->publish(*created);  // has no meaning for it
  CHECK(f.pool->stats().entries == 0);
  CHECK(f.pool->list().empty());
  CHECK(f.pool->stats().pinned_bytes == 9 * kTokenBytes);
  ModulePin other = created->duplicate();
  created->release();
  CHECK(f.pool->stats().module_bytes == 9 * kTokenBytes);
  CHECK(f.pool->check_integrity());
  other.release();
  CHECK(f.pool->stats().module_bytes == 0);
  CHECK(f.log->live_bytes() == 0);
  CHECK(f.evicted.empty());
}

TEST_CASE("a module without tokens needs no memory", "[kv]") {
  PoolFixture f(100);
  const ModulePin pin = f.add(1, 0);
  REQUIRE(pin);
  CHECK(pin.kv().data == nullptr);
  CHECK(f.log->faults == 0);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("the list is in order of use and tells hits, pins and idle time", "[kv]") {
  PoolFixture f(100);
  f.add(1, 8);
  f.add(2, 4, {.priority = 3});
  f.advance(10);
  f.pool->pin(key_of(1));
  f.advance(5);
  const ModulePin held = *f.pool->pin(key_of(2));
  f.advance(2);
  const auto list = f.pool->list();
  REQUIRE(list.size() == 2);
  CHECK(list[0].key == key_of(2));
  CHECK(list[0].pins == 1);
  CHECK(list[0].idle_seconds == 0);  // in use
  CHECK(list[0].retention.priority == 3);
  CHECK(list[1].key == key_of(1));
  CHECK(list[1].idle_seconds == Approx(7));
  CHECK(list[1].hits == 1);
  CHECK(list[1].tokens == 8);
  CHECK(list[1].bytes == 8 * kTokenBytes);
}

TEST_CASE("poison makes a read after release, and before writing, a NaN", "[kv]") {
  PoolFixture f(100, /*poison=*/true);
  SequenceBlock block = std::move(*f.pool->allocate_block());
  auto* const numbers = reinterpret_cast<float*>(block.data());
  CHECK(std::isnan(numbers[0]));  // not written yet
  const std::size_t count = 4 * kTokenBytes / sizeof(float);
  std::fill(numbers, numbers + count, 1.0F);
  block = SequenceBlock();
  // The block is a spare one now: allocated still, so it can be looked at.
  REQUIRE(f.log->live.count(reinterpret_cast<std::byte*>(numbers)) == 1);
  CHECK(std::isnan(numbers[0]));
  CHECK(std::isnan(numbers[count - 1]));

  const ModulePin module = f.add(1, 8);
  CHECK(std::isnan(reinterpret_cast<float*>(module.kv().data)[0]));
}

TEST_CASE("a module's memory is poisoned before it is given back", "[kv]") {
  // Writes down the first byte of what comes back.
  class Recorder final : public KvAllocator {
   public:
    explicit Recorder(std::vector<std::byte>* seen) : seen_(seen), inner_(make_host_allocator()) {}
    std::byte* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
    void deallocate(std::byte* data, std::size_t bytes) override {
      seen_->push_back(data[0]);
      inner_->deallocate(data, bytes);
    }
    void poison(std::byte* data, std::size_t bytes) override { inner_->poison(data, bytes); }

   private:
    std::vector<std::byte>* seen_;
    std::unique_ptr<KvAllocator> inner_;
  };
  std::vector<std::byte> seen;
  ModulePool::Options options;
  options.capacity_bytes = kTinyGeometry.bytes(16);
  options.poison = true;
  options.block_tokens = 4;
  ModulePool pool(options, kTinyGeometry, std::make_unique<Recorder>(&seen));
  {
    const auto pin = pool.create(key_of(1), 8, 0, {});
    REQUIRE(pin);
    pool.publish(*pin);
    std::memset(pin->kv().data, 0, 8 * kTokenBytes);
  }
  pool.remove(key_of(1));
  CHECK(seen == std::vector{std::byte{0xFF}});
}

TEST_CASE("on_evict may use the pool", "[kv]") {
  std::unique_ptr<ModulePool> pool;
  std::size_t free_bytes_seen = 0;
  ModulePool::Options options;
  options.capacity_bytes = kTinyGeometry.bytes(8);
  options.block_tokens = 4;
  options.on_evict = [&](EvictionReason, std::size_t) { free_bytes_seen = pool->stats().free_bytes; };
  pool = std::make_unique<ModulePool>(options, kTinyGeometry, make_host_allocator());
  {
    const auto pin = pool->create(key_of(1), 8, 0, {});
    REQUIRE(pin);
    pool->publish(*pin);
  }
  pool->drop_unpinned();
  CHECK(free_bytes_seen == 8 * kTokenBytes);
}

}  // namespace
}  // namespace promptcached::kv
