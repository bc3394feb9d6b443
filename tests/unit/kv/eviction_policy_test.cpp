#include "core/kv/eviction_policy.h"

#include <vector>

#include "tests/catch.h"

namespace promptcached::kv {
namespace {

// A policy with `count` items of one byte, each used once.
struct Items {
  explicit Items(std::size_t count, EvictionKind kind = EvictionKind::kCost, double seconds = 0)
      : policy(kind), items(count, EvictionItem{.bytes = 1, .recompute_seconds = seconds}) {
    for (EvictionItem& item : items) {
      policy.count_use(item);
      policy.add(item);
    }
  }
  std::size_t next() const { return static_cast<std::size_t>(&policy.next() - items.data()); }
  std::size_t evict() {
    const std::size_t index = next();
    policy.remove(items[index]);
    return index;
  }
  // Back again, as a module that was encoded anew.
  void replace(std::size_t index) {
    policy.remove(items[index]);
    items[index] = {.bytes = items[index].bytes, .recompute_seconds = items[index].recompute_seconds};
    policy.count_use(items[index]);
    policy.add(items[index]);
  }

  EvictionPolicy policy;
  std::vector<EvictionItem> items;
};

TEST_CASE("equal items go in the order of their last use", "[kv]") {
  Items f(3, GENERATE(EvictionKind::kCost, EvictionKind::kLru));
  f.policy.count_use(f.items[0]);
  CHECK(f.evict() == 1);
  CHECK(f.evict() == 2);
  CHECK(f.evict() == 0);
  CHECK(f.policy.empty());
  CHECK(f.policy.bytes() == 0);
}

TEST_CASE("what is dear for its bytes stays longer", "[kv]") {
  Items f(3, EvictionKind::kCost, 1);
  f.policy.remove(f.items[0]);
  f.items[0].recompute_seconds = 4;
  f.policy.touch(f.items[0]);
  f.policy.add(f.items[0]);
  f.policy.remove(f.items[2]);
  f.items[2].bytes = 8;
  f.policy.touch(f.items[2]);
  f.policy.add(f.items[2]);
  CHECK(f.policy.bytes() == 10);
  CHECK(f.evict() == 2);
  CHECK(f.evict() == 1);
  CHECK(f.evict() == 0);
}

TEST_CASE("what is used often stays longer, in kCost alone", "[kv]") {
  const EvictionKind kind = GENERATE(EvictionKind::kCost, EvictionKind::kLru);
  Items f(3, kind);
  f.policy.count_use(f.items[0]);
  f.policy.count_use(f.items[0]);
  f.policy.touch(f.items[1]);
  f.policy.touch(f.items[2]);
  CHECK(f.next() == (kind == EvictionKind::kCost ? 1U : 0U));
}

TEST_CASE("an unknown cost is an average one", "[kv]") {
  Items f(2, EvictionKind::kCost, 0.001);
  EvictionItem unknown{.bytes = 1};
  f.policy.count_use(unknown);
  f.policy.touch(f.items[0]);
  CHECK(unknown.value == Approx(f.items[0].value));
}

TEST_CASE("priority comes before worth", "[kv]") {
  Items f(2, EvictionKind::kCost, 1);
  f.policy.remove(f.items[1]);
  f.items[1].priority = -1;
  f.items[1].recompute_seconds = 1000;
  f.policy.count_use(f.items[1]);
  f.policy.add(f.items[1]);
  CHECK(f.next() == 1);
}

TEST_CASE("what was popular goes once it is not used any more", "[kv]") {
  Items f(10);
  for (int use = 0; use < 1000; ++use) {
    f.policy.count_use(f.items[0]);
  }
  int evictions = 0;
  for (; f.next() != 0; ++evictions) {
    REQUIRE(evictions < 5000);
    f.replace(f.evict());
  }
  CHECK(evictions > 100);  // nor at once
}

TEST_CASE("uses long ago count less", "[kv]") {
  Items f(20);
  for (int use = 0; use < 100; ++use) {
    f.policy.count_use(f.items[0]);
  }
  const double then = f.items[0].frequency;
  for (int use = 0; use < 1000; ++use) {
    f.policy.count_use(f.items[1]);
  }
  f.policy.touch(f.items[0]);
  CHECK(f.items[0].frequency < then / 20);
  CHECK(f.items[0].frequency >= 1);  // it has just been used
}

TEST_CASE("an item brings its frequency along from another tier", "[kv]") {
  Items above(20);
  for (int use = 0; use < 50; ++use) {
    above.policy.count_use(above.items[0]);
  }
  Items below(20);
  EvictionItem moved = above.items[0];
  below.policy.adopt(moved);
  CHECK(moved.frequency == above.items[0].frequency);
  below.policy.add(moved);
  CHECK(&below.policy.next() == below.items.data());
}

TEST_CASE("adding twice and removing what is not there change nothing", "[kv]") {
  Items f(2);
  f.policy.add(f.items[0]);
  CHECK(f.policy.size() == 2);
  CHECK(f.policy.bytes() == 2);
  f.policy.remove(f.items[0]);
  f.policy.remove(f.items[0]);
  CHECK(f.policy.size() == 1);
  CHECK(f.policy.bytes() == 1);
  CHECK_FALSE(f.policy.contains(f.items[0]));
}

}  // namespace
}  // namespace promptcached::kv
