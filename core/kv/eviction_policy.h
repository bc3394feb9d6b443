// EvictionPolicy: which module of a tier goes first when room is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>

namespace promptcached::kv {

enum class EvictionKind {
  kCost,  // by what keeping it is worth: recent uses x seconds to recompute / bytes, aged
  kLru,   // the least recently used
};
std::string_view to_string(EvictionKind kind);

// What is known of a module's worth, wherever it lies.
struct ModuleWorth {
  double recompute_seconds = 0;  // what its loss would cost; 0: unknown, then it is worth what its bytes are on average
  double frequency = 0;          // uses, the older the less
};

// What a policy knows of a module; each tier's entry has one as its base. Its holder fills in the first three, and
// takes the item out of the policy while it changes them.
struct EvictionItem {
  std::size_t bytes = 0;
  double recompute_seconds = 0;  // what its loss would cost; 0: unknown, then it is worth what its bytes are on average
  int priority = 0;              // lower ones go first, whatever they are worth

  // Kept by the policy.
  double frequency = 0;     // uses, the older the less, as of the last one
  double seen_at = 0;       // when that was, by the policy's clock
  double value = 0;         // compared among those of one priority
  std::uint64_t order = 0;  // of uses; decides between equal values, and is all that counts in kLru
};

// The evictable items of one tier in the order in which they go: lowest priority first, then least value. In kCost an
// item is worth frequency x recompute_seconds / bytes, and half as much after each half-life without a use. All fall
// equally fast, so their order only changes with a use, and is kept by value = log2(worth at the last use) + the time
// of that use in half-lives (docs/decisions/0017-eviction.md). Every operation is O(log n) or better. Not thread-safe:
// its tier's lock guards it.
class EvictionPolicy final {
 public:
  explicit EvictionPolicy(EvictionKind kind = EvictionKind::kCost) : kind_(kind) {}

  // ---- For items that are in here or not: pinned ones are used, too ----

  void count_use(EvictionItem& item);  // the latest use of all, and one more
  void touch(EvictionItem& item);      // the latest use of all, but not one more: a long one has ended
  // The item is used as often as `other`, which is of no use without it: it is worth as much at least, and goes later.
  void outlast(EvictionItem& item, const EvictionItem& other);
  // The item comes from another tier, whose policy has kept it: it brings its frequency along, and is touched.
  void adopt(EvictionItem& item);

  // ---- The evictable ones ----

  void add(EvictionItem& item);     // nothing happens when it is in here already
  void remove(EvictionItem& item);  // nor when it is not
  bool contains(const EvictionItem& item) const { return items_.contains(&item); }
  EvictionItem& next() const { return **items_.begin(); }  // must not be empty

  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  std::size_t bytes() const { return bytes_; }  // of all of them

 private:
  struct GoesBefore {
    using is_transparent = void;
    bool operator()(const EvictionItem* a, const EvictionItem* b) const;
  };
  void see(EvictionItem& item, double uses);
  double relative_cost(const EvictionItem& item) const;

  EvictionKind kind_;
  std::set<EvictionItem*, GoesBefore> items_;
  std::size_t bytes_ = 0;
  std::uint64_t order_ = 0;
  double now_ = 0;  // in half-lives: uses are the clock

  // What a byte costs to recompute, on average over recent uses of items of which it is known.
  double known_seconds_ = 0;
  double known_bytes_ = 0;
};

}  // namespace promptcached::kv
