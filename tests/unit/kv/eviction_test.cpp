// Who goes when room is wanted, and who does not.
#include <utility>

#include "core/kv/module_pool.h"
#include "tests/catch.h"
#include "tests/unit/kv/pool_fixture.h"

namespace promptcached::kv {
namespace {

Retention ttl_of(double seconds, bool pin = false) {
  Retention retention;
  retention.ttl = std::chrono::duration<double>(seconds);
  retention.pin = pin;
  return retention;
}

TEST_CASE("the least recently used module goes first", "[kv]") {
  PoolFixture f(12);
  f.add(1, 4);
  f.add(2, 4);
  f.add(3, 4);
  f.pool->pin(key_of(1));  // a use
  f.add(4, 4);
  CHECK(f.pool->contains(key_of(1)));
  CHECK_FALSE(f.pool->contains(key_of(2)));
  CHECK(f.evicted == std::vector<Evicted>{{EvictionReason::kCapacity, 4 * kTokenBytes}});
  CHECK(f.pool->check_integrity());
}

TEST_CASE("looking is not using", "[kv]") {
  PoolFixture f(8);
  f.add(1, 4);
  f.add(2, 4);
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.pool->info(key_of(1)));
  CHECK(f.pool->list().size() == 2);
  f.add(3, 4);
  CHECK_FALSE(f.pool->contains(key_of(1)));
}

TEST_CASE("a use lasts until the pin goes", "[kv]") {
  PoolFixture f(12);
  f.add(1, 4);
  ModulePin streaming = *f.pool->pin(key_of(1));
  f.add(2, 4);
  f.add(3, 4);
  streaming.release();
  f.add(4, 4);
  CHECK(f.pool->contains(key_of(1)));
  CHECK_FALSE(f.pool->contains(key_of(2)));
}

TEST_CASE("low priority goes before long unused", "[kv]") {
  PoolFixture f(12);
  f.add(1, 4, {.priority = 1});
  f.add(2, 4, {.priority = 0});
  f.add(3, 4, {.priority = -1});
  f.add(4, 4, {.priority = 5});
  CHECK_FALSE(f.pool->contains(key_of(3)));
  f.pool->set_retention(key_of(1), {.priority = -9});
  f.add(5, 4, {.priority = 5});
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK(f.pool->contains(key_of(2)));
  CHECK(f.pool->check_integrity());
}

TEST_CASE("pinned modules stay, by sequences or by retention", "[kv]") {
  PoolFixture f(12);
  f.add(1, 4, {.pin = true});
  f.add(2, 4);
  const ModulePin pin = *f.pool->pin(key_of(2));
  f.add(3, 4);
  CHECK(f.pool->stats().pinned_bytes == 8 * kTokenBytes);
  CHECK(f.add(4, 4));
  CHECK_FALSE(f.pool->contains(key_of(3)));
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.pool->contains(key_of(2)));
  CHECK(f.pool->drop_unpinned() == 4 * kTokenBytes);
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.pool->contains(key_of(2)));
  f.pool->set_retention(key_of(1), {});
  CHECK(f.pool->stats().pinned_bytes == 4 * kTokenBytes);
  CHECK(f.pool->drop_unpinned() == 4 * kTokenBytes);
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK(f.pool->check_integrity());
}

TEST_CASE("retention can be set while a module is encoded", "[kv]") {
  PoolFixture f(4);
  {
    Result<ModulePin> created = f.pool->create(key_of(1), 4, 0, {});
    REQUIRE(created);
    f.pool->set_retention(key_of(1), {.pin = true});
    f.pool->publish(*created);
  }
  CHECK(f.pool->drop_unpinned() == 0);
  CHECK(f.pool->contains(key_of(1)));
  f.pool->set_retention(key_of(99), {.pin = true});  // not there: nothing happens
}

TEST_CASE("what cannot succeed evicts nothing", "[kv]") {
  PoolFixture f(20);
  const ModulePin pinned = f.add(1, 8);
  for (int number = 2; number <= 4; ++number) {
    f.add(number, 4);
  }
  SECTION("a module larger than all the rest") {
    const Result<ModulePin> result = f.pool->create(key_of(9), 13, 0, {});
    REQUIRE_FALSE(result);
    CHECK(result.error().code == ErrorCode::kQueueFull);
  }
  SECTION("a module larger than the pool") {
    const Result<ModulePin> result = f.pool->create(key_of(9), 21, 0, {});
    REQUIRE_FALSE(result);
    CHECK(result.error().code == ErrorCode::kTooLargeForCache);
    CHECK(f.pool->create_private(16, 5).error().code == ErrorCode::kTooLargeForCache);
  }
  SECTION("more blocks than all the rest") {
    const auto result = f.pool->allocate_blocks(4);
    REQUIRE_FALSE(result);
    CHECK(result.error().code == ErrorCode::kQueueFull);
  }
  CHECK(f.evicted.empty());
  CHECK(f.pool->stats().entries == 4);
  CHECK(f.pool->stats().free_bytes == 0);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("the largest module fits into the whole pool", "[kv]") {
  PoolFixture f(20);
  for (int number = 1; number <= 5; ++number) {
    f.add(number, 4);
  }
  CHECK(f.add(9, 20));
  CHECK(f.evicted.size() == 5);
  CHECK(f.log->peak_bytes == 20 * kTokenBytes);
}

TEST_CASE("blocks evict modules, and give back their bytes", "[kv]") {
  PoolFixture f(16);
  for (int number = 1; number <= 4; ++number) {
    f.add(number, 4);
  }
  CHECK(f.pool->stats().free_blocks == 0);
  {
    auto blocks = f.pool->allocate_blocks(2);
    REQUIRE(blocks);
    CHECK(blocks->size() == 2);
    CHECK((*blocks)[0].data() != (*blocks)[1].data());
    CHECK(f.pool->stats().block_bytes == 8 * kTokenBytes);
    CHECK(f.pool->stats().entries == 2);
    CHECK_FALSE(f.pool->contains(key_of(2)));
    CHECK(f.pool->check_integrity());
    auto third = f.pool->allocate_block();
    REQUIRE(third);
    CHECK(f.pool->stats().entries == 1);
  }
  CHECK(f.pool->stats().block_bytes == 0);
  CHECK(f.pool->stats().free_blocks == 3);
  CHECK(f.pool->allocate_blocks(0)->empty());
}

TEST_CASE("spare blocks never keep a module out, nor pass the capacity", "[kv]") {
  PoolFixture f(64);  // an eighth of it, two blocks, may be spare
  {
    const auto blocks = f.pool->allocate_blocks(16);
  }
  CHECK(f.log->live_bytes() == 8 * kTokenBytes);
  CHECK(f.pool->stats().free_bytes == f.pool->stats().capacity_bytes);
  CHECK(f.add(1, 60));
  CHECK(f.log->live_bytes() == 64 * kTokenBytes);
  CHECK(f.pool->check_integrity());
  CHECK(f.add(2, 64));
  CHECK(f.log->peak_bytes == 64 * kTokenBytes);
  f.pool->drop_unpinned();
  CHECK(f.log->live_bytes() == 0);
}

TEST_CASE("a full device is an error that leaves the counters as they were", "[kv]") {
  PoolFixture f(64);
  {
    const auto blocks = f.pool->allocate_blocks(2);
  }  // two spare ones
  f.add(1, 8);
  f.log->limit_bytes = 20 * kTokenBytes;
  const PoolStats before = f.pool->stats();
  const Result<ModulePin> module = f.pool->create(key_of(2), 16, 0, {});
  REQUIRE_FALSE(module);
  CHECK(module.error().code == ErrorCode::kQueueFull);
  const auto blocks = f.pool->allocate_blocks(5);
  REQUIRE_FALSE(blocks);
  CHECK(blocks.error().code == ErrorCode::kQueueFull);
  const PoolStats after = f.pool->stats();
  CHECK(after.module_bytes == before.module_bytes);
  CHECK(after.block_bytes == 0);
  CHECK(after.free_bytes == before.free_bytes);
  CHECK(f.pool->check_integrity());
  CHECK_FALSE(f.pool->contains(key_of(2)));
  // Spare blocks are given up before a module is refused.
  CHECK(f.add(3, 12));
  CHECK(f.log->faults == 0);
}

TEST_CASE("a module is gone when its time has run out since its last use", "[kv]") {
  PoolFixture f(100);
  f.add(1, 4, ttl_of(10));
  f.advance(9);
  CHECK(f.pool->pin(key_of(1)));
  f.advance(9);
  CHECK(f.pool->contains(key_of(1)));
  f.advance(1);
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK_FALSE(f.pool->info(key_of(1)));
  CHECK(f.pool->list().empty());
  CHECK(f.evicted.empty());  // looking changes nothing
  SECTION("dropped by request") { f.pool->drop_expired(); }
  SECTION("dropped by a pin that comes too late") { CHECK_FALSE(f.pool->pin(key_of(1))); }
  SECTION("dropped by its successor") { CHECK(f.add(1, 4)); }
  CHECK(f.evicted == std::vector<Evicted>{{EvictionReason::kTtl, 4 * kTokenBytes}});
  CHECK(f.pool->check_integrity());
}

TEST_CASE("a pinned module's time does not run", "[kv]") {
  PoolFixture f(100);
  ModulePin pin = f.add(1, 4, ttl_of(10));
  f.add(2, 4, ttl_of(10, /*pin=*/true));
  f.advance(11);
  f.pool->drop_expired();
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.pool->contains(key_of(2)));
  pin.release();
  f.advance(9);
  f.pool->drop_expired();
  CHECK(f.pool->contains(key_of(1)));
  f.advance(2);
  f.pool->drop_expired();
  CHECK_FALSE(f.pool->contains(key_of(1)));
  CHECK(f.pool->contains(key_of(2)));
}

TEST_CASE("what has expired goes before what may still be used", "[kv]") {
  PoolFixture f(8);
  f.add(1, 4);
  f.add(2, 4, ttl_of(1));
  f.advance(2);
  f.add(3, 4);
  CHECK(f.pool->contains(key_of(1)));
  CHECK(f.evicted == std::vector<Evicted>{{EvictionReason::kTtl, 4 * kTokenBytes}});
}

}  // namespace
}  // namespace promptcached::kv
