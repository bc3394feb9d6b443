#include "core/kv/sequence_cache.h"

#include <cstring>
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
  for (const SequenceCache::Block& block : sequence.blocks()) {
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

TEST_CASE("a block that is shared stays where it is, and another sequence reads it there", "[kv]") {
  PoolFixture f(40);
  SequenceCache one(*f.pool);
  REQUIRE(one.reserve(8));
  one.append(7);
  std::byte* const data = one.blocks()[0].data();
  std::memset(data, 0x11, 4 * kTokenBytes);
  REQUIRE(one.share(0, prefix_key(1), 4, {1, 0}));
  CHECK(one.blocks()[0].is_shared());
  CHECK(one.blocks()[0].data() == data);
  CHECK_FALSE(one.blocks()[1].is_shared());
  PoolStats stats = f.pool->stats();
  CHECK(stats.prefix_entries == 1);
  CHECK(stats.prefix_bytes == 4 * kTokenBytes);
  CHECK(stats.pinned_bytes == 4 * kTokenBytes);
  CHECK(stats.block_bytes == 4 * kTokenBytes);
  CHECK(stats.module_bytes == 0);
  CHECK(stats.entries == 0);
  CHECK(f.pool->list().empty());
  CHECK(f.pool->check_integrity());

  SequenceCache other(*f.pool);
  other.adopt(*f.pool->pin(prefix_key(1)));
  CHECK(other.size() == 4);
  CHECK(other.missing_blocks(4) == 0);
  REQUIRE(other.reserve(5));
  CHECK(other.blocks()[0].data() == data);
  CHECK_FALSE(other.blocks()[1].is_shared());
  one.clear();
  CHECK(f.pool->stats().pinned_bytes == 4 * kTokenBytes);
  CHECK(other.blocks()[0].data()[5] == std::byte{0x11});
  other.clear();
  stats = f.pool->stats();
  CHECK(stats.pinned_bytes == 0);
  CHECK(stats.prefix_bytes == 4 * kTokenBytes);
  CHECK(f.pool->check_integrity());
  CHECK(f.pool->drop_unpinned() == 4 * kTokenBytes);
  CHECK(f.pool->stats().free_bytes == f.pool->stats().capacity_bytes);
}

TEST_CASE("of two blocks with one key the second gives its memory back", "[kv]") {
  PoolFixture f(40, /*poison=*/true);
  SequenceCache one(*f.pool);
  SequenceCache other(*f.pool);
  REQUIRE((one.reserve(4) && other.reserve(4)));
  one.append(4);
  other.append(4);
  REQUIRE(one.share(0, prefix_key(1), 4, {}));
  REQUIRE(other.share(0, prefix_key(1), 4, {}));
  CHECK(one.blocks()[0].data() == other.blocks()[0].data());
  CHECK(f.pool->stats().block_bytes == 0);
  CHECK(f.pool->stats().prefix_entries == 1);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("a block stays its sequence's while another fills the entry of its key", "[kv]") {
  PoolFixture f(40);
  const Result<ModulePin> loading = f.pool->create(prefix_key(1), 4, 0, {});
  REQUIRE(loading.ok());
  CHECK(f.pool->expects(prefix_key(1)));
  SequenceCache sequence(*f.pool);
  REQUIRE(sequence.reserve(4));
  sequence.append(4);
  std::byte* const data = sequence.blocks()[0].data();
  CHECK_FALSE(sequence.share(0, prefix_key(1), 4, {}));
  CHECK_FALSE(sequence.blocks()[0].is_shared());
  CHECK(sequence.blocks()[0].data() == data);
  CHECK(f.pool->check_integrity());
}

TEST_CASE("part of a block can be shared, and says how much of it is filled", "[kv]") {
  PoolFixture f(40);
  SequenceCache sequence(*f.pool);
  REQUIRE(sequence.reserve(4));
  sequence.append(3);
  REQUIRE(sequence.share(0, prefix_key(1), 3, {}));
  sequence.clear();
  const std::optional<ModulePin> pin = f.pool->pin(prefix_key(1));
  REQUIRE(pin.has_value());
  CHECK(pin->kv().tokens == 3);
  CHECK(pin->kv().total_tokens() == 4);
  CHECK(f.pool->check_integrity());
}

// Whatever the uses and prices say: without its beginning a chain is of no use.
TEST_CASE("of a chain of blocks the last goes first", "[kv]") {
  const EvictionKind eviction = GENERATE(EvictionKind::kCost, EvictionKind::kLru);
  PoolFixture f(16, false, eviction);
  {
    SequenceCache sequence(*f.pool);
    REQUIRE(sequence.reserve(16));
    for (int block = 0; block < 4; ++block) {
      sequence.append(4);
      REQUIRE(sequence.share(block, prefix_key(block), 4, {1.0 + block, 0}));
      f.pool->pin(prefix_key(3));  // once it is there, its uses are more recent than the root's
    }
    sequence.clear();
  }
  SequenceCache newcomer(*f.pool);
  for (int gone = 3; gone >= 0; --gone) {
    CHECK(f.pool->contains(prefix_key(gone)));
    REQUIRE(newcomer.reserve(16 - 4 * gone));
    CHECK_FALSE(f.pool->contains(prefix_key(gone)));
    CHECK(f.pool->stats().prefix_entries == gone);
  }
}

}  // namespace
}  // namespace promptcached::kv
