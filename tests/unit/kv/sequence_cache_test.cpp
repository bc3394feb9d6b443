#include "core/kv/sequence_cache.h"

#include <set>
#include <utility>

#include "tests/catch.h"
#include "tests/unit/kv/pool_fixture.h"

namespace promptcached::kv {
namespace {

TEST_CASE("a sequence gets the blocks its tokens need, and no more", "[kv]") {
  PoolFixture f(40);
  SequenceCache sequence(*f.pool);
  CHECK(sequence.missing_blocks(0) == 0);
  CHECK(sequence.missing_blocks(1) == 1);
  CHECK(sequence.missing_blocks(4) == 1);
  CHECK(sequence.missing_blocks(5) == 2);
  CHECK(sequence.missing_blocks(INT32_MAX) == 536870912);
  REQUIRE(sequence.reserve(5));
  CHECK(sequence.blocks().size() == 2);
  CHECK(sequence.size() == 0);
  sequence.append(5);
  CHECK(sequence.size() == 5);
  const std::byte* const first = sequence.blocks()[0].data();
  REQUIRE(sequence.reserve(8));
  CHECK(sequence.blocks().size() == 2);
  REQUIRE(sequence.reserve(9));
  CHECK(sequence.blocks().size() == 3);
  CHECK(sequence.blocks()[0].data() == first);
  REQUIRE(sequence.reserve(1));  // never shrinks
  CHECK(sequence.blocks().size() == 3);
  std::set<const std::byte*> distinct;
  for (const SequenceBlock& block : sequence.blocks()) {
    distinct.insert(block.data());
  }
  CHECK(distinct.size() == 3);
  CHECK(f.pool->stats().block_bytes == 12 * kTokenBytes);
  sequence.clear();
  CHECK(sequence.size() == 0);
  CHECK(sequence.blocks().empty());
  CHECK(f.pool->stats().block_bytes == 0);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("a reservation that fails changes nothing", "[kv]") {
  PoolFixture f(16);
  SequenceCache sequence(*f.pool);
  REQUIRE(sequence.reserve(4));
  sequence.append(4);
  f.add(1, 4);
  const ModulePin pinned = f.add(2, 8);
  const Status status = sequence.reserve(16);
  REQUIRE_FALSE(status);
  CHECK(status.error().code == ErrorCode::kQueueFull);
  CHECK(sequence.blocks().size() == 1);
  CHECK(sequence.size() == 4);
  CHECK(f.pool->contains(key_of(1)));  // not evicted in vain
  CHECK(f.pool->check_integrity());
  CHECK(sequence.reserve(8));
  CHECK_FALSE(f.pool->contains(key_of(1)));
}

TEST_CASE("a sequence that goes returns its blocks", "[kv]") {
  PoolFixture f(16);
  {
    SequenceCache sequence(*f.pool);
    REQUIRE(sequence.reserve(16));
    const SequenceCache moved = std::move(sequence);
    CHECK(moved.blocks().size() == 4);
  }
  CHECK(f.pool->stats().free_bytes == f.pool->stats().capacity_bytes);
}

}  // namespace
}  // namespace promptcached::kv
