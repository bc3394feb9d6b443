// Random operations on the pool and on a plain model of it: the same answers, and sound books after every step.
#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "core/kv/module_pool.h"
#include "tests/catch.h"
#include "tests/unit/kv/pool_fixture.h"
#include "tests/unit/kv/pool_model.h"

namespace promptcached::kv {
namespace {

constexpr std::int64_t kCapacityTokens = 96;
constexpr int kKeys = 12;
constexpr int kSteps = 5000;
// Few enough that much of the pool is evictable most of the time, and sometimes none of it.
constexpr std::size_t kMostPins = 6;
constexpr std::size_t kMostBlocks = 10;

bool same(const PoolStats& a, const PoolStats& b) {
  return a.capacity_bytes == b.capacity_bytes && a.module_bytes == b.module_bytes && a.pinned_bytes == b.pinned_bytes &&
         a.block_bytes == b.block_bytes && a.free_bytes == b.free_bytes && a.entries == b.entries &&
         a.free_blocks == b.free_blocks;
}

// A pool and its model, with the pins and blocks now held.
class Pair {
 public:
  Pair(unsigned seed, EvictionKind eviction)
      : random_(seed), real_(kCapacityTokens, /*poison=*/true, eviction), model_(kCapacityTokens, 4, eviction) {}

  // One random operation; what differs between the two, or an empty string.
  std::string step() {
    if (pins_.size() > kMostPins || blocks_.size() > kMostBlocks) {
      return pins_.size() > kMostPins ? release() : blocks();
    }
    switch (pick(13)) {
      case 0:
      case 1:
        return create(pick(kKeys) + 1);
      case 2:
        return create(0);
      case 3:
      case 4:
        return pin();
      case 5:
        return duplicate();
      case 6:
      case 7:
        return release();
      case 8:
        return blocks();
      case 9:
        return publish();
      case 10:
        return retain_or_remove();
      case 11:
        return publish_block();
      default:
        return time_or_drop();
    }
  }

  std::string compare() {
    if (!real_.pool->check_integrity()) {
      return "the pool's books do not balance";
    }
    if (!same(real_.pool->stats(), model_.stats())) {
      return "statistics differ";
    }
    if (model_.wrong_order > 0) {
      return "the policy's order is not that of its values";
    }
    if (real_.log->live_bytes() > kTinyGeometry.bytes(kCapacityTokens)) {
      return "more than the capacity is allocated";
    }
    // Those that expired go in no particular order.
    const auto order = [](const Evicted& a, const Evicted& b) {
      return std::pair(static_cast<int>(a.reason), a.bytes) < std::pair(static_cast<int>(b.reason), b.bytes);
    };
    std::sort(real_.evicted.begin(), real_.evicted.end(), order);
    std::sort(model_.evicted.begin(), model_.evicted.end(), order);
    if (real_.evicted != model_.evicted) {
      return "evictions differ";
    }
    for (const Evicted& evicted : real_.evicted) {
      ++happened_["evicted, reason " + std::to_string(static_cast<int>(evicted.reason))];
    }
    real_.evicted.clear();
    model_.evicted.clear();
    return compare_list();
  }

  // How often what is worth testing came about.
  const std::map<std::string, int>& happened() const { return happened_; }

  // Lets everything go; the allocator must be empty then.
  bool finish() {
    pins_.clear();
    blocks_.clear();
    real_.pool.reset();
    return real_.log->live_bytes() == 0 && real_.log->faults == 0 &&
           real_.log->peak_bytes <= kTinyGeometry.bytes(kCapacityTokens);
  }

 private:
  struct Held {
    int id;  // in the model
    ModulePin pin;
    std::byte mark;  // what was written into the module when it was created
    std::size_t bytes;
  };

  int pick(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  Held& any_held() { return pins_[static_cast<std::size_t>(pick(static_cast<int>(pins_.size())))]; }

  Retention any_retention() {
    Retention retention;
    retention.pin = pick(8) == 0;
    retention.priority = pick(3);
    if (pick(2) == 0) {
      retention.ttl = std::chrono::duration<double>(1 + pick(5));
    }
    return retention;
  }

  std::string create(int key) {
    const int tokens = pick(20) == 0 ? 100 : pick(30);
    const Retention retention = any_retention();
    auto real =
        key == 0 ? real_.pool->create_private(tokens, 0) : real_.pool->create(key_of(key), tokens, 0, retention);
    const auto model = model_.create(key, tokens, retention);
    if (real.ok() != model.ok()) {
      return "create: one succeeds, the other does not";
    }
    ++happened_[real ? "created" : "not created: " + std::string(to_string(real.error().code))];
    if (!real) {
      return real.error().code == model.error().code ? "" : "create: errors differ";
    }
    const auto bytes = kTinyGeometry.bytes(tokens);
    const auto mark = static_cast<std::byte>(*model % 251);
    if (bytes > 0) {
      std::memset(real->kv().data, std::to_integer<int>(mark), bytes);
    }
    marks_[*model] = mark;
    pins_.push_back({*model, std::move(real).value(), mark, bytes});
    return "";
  }

  std::string pin() {
    const int key = pick(kKeys) + 1;
    const bool contained = real_.pool->contains(key_of(key));
    auto real = real_.pool->pin(key_of(key));
    const auto model = model_.pin(key);
    if (real.has_value() != model.has_value() || contained != model.has_value()) {
      return "pin: found in one only";
    }
    ++happened_[real ? "hit" : "miss"];
    if (real) {
      const auto bytes = kTinyGeometry.bytes(real->kv().total_tokens());
      pins_.push_back({*model, std::move(*real), marks_[*model], bytes});
    }
    return "";
  }

  std::string duplicate() {
    if (!pins_.empty()) {
      const Held& held = any_held();
      model_.duplicate(held.id);
      pins_.push_back({held.id, held.pin.duplicate(), held.mark, held.bytes});
    }
    return "";
  }

  std::string release() {
    if (pins_.empty()) {
      return "";
    }
    Held& held = any_held();
    const std::byte* const data = held.pin.kv().data;
    for (std::size_t i = 0; i < held.bytes; ++i) {
      if (data[i] != held.mark) {
        return "a pinned module was overwritten";
      }
    }
    model_.release(held.id);
    held.pin.release();
    std::swap(held, pins_.back());
    pins_.pop_back();
    return "";
  }

  std::string blocks() {
    if (pick(2) == 0 && !blocks_.empty()) {
      blocks_.pop_back();
      model_.free_block();
      return "";
    }
    const int count = pick(6);
    auto real = real_.pool->allocate_blocks(count);
    if (real.ok() != model_.allocate_blocks(count)) {
      return "allocate_blocks: one succeeds, the other does not";
    }
    ++happened_[real ? "blocks" : "no blocks"];
    if (real) {
      for (SequenceBlock& block : *real) {
        std::memset(block.data(), 0xEE, 4 * kTokenBytes);
        blocks_.push_back(std::move(block));
      }
    }
    return "";
  }

  std::string publish() {
    if (!pins_.empty()) {
      const Held& held = any_held();
      const double seconds = pick(4);  // 0: not known
      real_.pool->publish(held.pin, {seconds, 0});
      model_.publish(held.id, seconds);
    }
    return "";
  }

  // Under the same keys as modules: nothing here depends on which of the two an entry is.
  std::string publish_block() {
    if (blocks_.empty()) {
      return "";
    }
    const int key = pick(kKeys) + 1;
    const double seconds = pick(4);
    SequenceBlock& block = blocks_.back();
    std::byte* const data = block.data();
    auto real = real_.pool->publish_block(block, key_of(key), 4, {seconds, 0});
    const auto model = model_.publish_block(key, seconds);
    if (real.has_value() != model.has_value() || static_cast<bool>(block) == real.has_value()) {
      return "publish_block: one succeeds, the other does not";
    }
    ++happened_[!real ? "block refused" : real->kv().data == data ? "block published" : "block merged"];
    if (!real) {
      return "";
    }
    blocks_.pop_back();
    if (real->kv().data == data) {
      marks_[*model] = std::byte{0xEE};
    }
    const auto bytes = kTinyGeometry.bytes(real->kv().total_tokens());
    pins_.push_back({*model, std::move(*real), marks_[*model], bytes});
    return "";
  }

  std::string retain_or_remove() {
    const int key = pick(kKeys) + 1;
    if (pick(3) == 0) {
      real_.pool->remove(key_of(key));
      model_.remove(key);
    } else {
      const Retention retention = any_retention();
      real_.pool->set_retention(key_of(key), retention);
      model_.set_retention(key, retention);
    }
    return "";
  }

  std::string time_or_drop() {
    const int what = pick(40);
    if (what == 0) {
      const auto tokens = model_.drop_unpinned();
      return real_.pool->drop_unpinned() == kTinyGeometry.bytes(tokens) ? "" : "drop_unpinned: bytes differ";
    }
    if (what < 5) {
      real_.pool->drop_expired();
      model_.drop_expired();
      return "";
    }
    const int seconds = 1 + pick(4);
    real_.advance(seconds);
    model_.now += seconds;
    return "";
  }

  std::string compare_list() {
    const auto real = real_.pool->list();
    const auto model = model_.list();
    const bool equal = std::equal(real.begin(), real.end(), model.begin(), model.end(),
                                  [](const ModuleInfo& info, int key) { return info.key == key_of(key); });
    return equal ? "" : "lists differ";
  }

  std::mt19937 random_;
  PoolFixture real_;
  PoolModel model_;
  std::map<int, std::byte> marks_;
  std::map<std::string, int> happened_;
  std::vector<Held> pins_;
  std::vector<SequenceBlock> blocks_;
};

TEST_CASE("the pool does what its plain model does, whatever the operations", "[kv]") {
  const EvictionKind eviction = GENERATE(EvictionKind::kCost, EvictionKind::kLru);
  std::map<std::string, int> happened;
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Pair pair(seed, eviction);
    for (int step = 0; step < kSteps; ++step) {
      std::string difference = pair.step();
      if (difference.empty()) {
        difference = pair.compare();
      }
      INFO("seed " << seed << ", step " << step << ": " << difference);
      REQUIRE(difference.empty());
    }
    REQUIRE(pair.finish());
    for (const auto& [what, count] : pair.happened()) {
      happened[what] += count;
    }
  }
  // Nor did the operations leave anything out.
  for (const char* what : {"created", "not created: conflict", "not created: queue_full",
                           "not created: too_large_for_cache", "hit", "miss", "blocks", "no blocks", "block published",
                           "block merged", "evicted, reason 0", "evicted, reason 1", "evicted, reason 2"}) {
    INFO(what << ": " << happened[what]);
    CHECK(happened[what] >= 100);
  }
}

}  // namespace
}  // namespace promptcached::kv
