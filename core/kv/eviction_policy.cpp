#include "core/kv/eviction_policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace promptcached::kv {
namespace {

// A use counts half after as many uses as there are items, times this: long enough to tell popular modules from others,
// short enough to forget them when they are no longer.
constexpr double kHalfLifeTurns = 8;
// Of a tier with few evictable items (the rest is pinned), so that a handful of uses is not an age.
constexpr std::size_t kFewItems = 16;
// The average forgets a use after about a thousand others: machines and loads change, and a bad measurement fades.
constexpr double kAverageDecay = 0.999;

}  // namespace

bool EvictionPolicy::GoesBefore::operator()(const EvictionItem* a, const EvictionItem* b) const {
  return std::tie(a->priority, a->value, a->order) < std::tie(b->priority, b->value, b->order);
}

std::string_view to_string(EvictionKind kind) { return kind == EvictionKind::kCost ? "cost" : "lru"; }

void EvictionPolicy::count_use(EvictionItem& item) {
  now_ += 1 / (kHalfLifeTurns * static_cast<double>(std::max(size(), kFewItems)));
  if (item.recompute_seconds > 0) {
    known_seconds_ = known_seconds_ * kAverageDecay + item.recompute_seconds;
    known_bytes_ = known_bytes_ * kAverageDecay + static_cast<double>(item.bytes);
  }
  see(item, 1);
}

void EvictionPolicy::touch(EvictionItem& item) { see(item, 0); }

void EvictionPolicy::outlast(EvictionItem& item, const EvictionItem& other) {
  const bool here = contains(item);
  remove(item);
  item.order = ++order_;
  item.value = std::max(item.value, other.value);
  if (here) {
    add(item);
  }
}

void EvictionPolicy::adopt(EvictionItem& item) {
  item.seen_at = now_;
  see(item, 0);
}

void EvictionPolicy::see(EvictionItem& item, double uses) {
  const bool here = contains(item);
  remove(item);
  item.order = ++order_;
  // A module is used by its last reader until that one ends, however long that takes: that is one use at least.
  item.frequency = std::max(item.frequency * std::exp2(item.seen_at - now_) + uses, 1.0);
  item.seen_at = now_;
  item.value = kind_ == EvictionKind::kLru ? 0 : now_ + std::log2(item.frequency * relative_cost(item));
  if (here) {
    add(item);
  }
}

// Relative to the average: what is unknown is then simply 1.
double EvictionPolicy::relative_cost(const EvictionItem& item) const {
  if (item.recompute_seconds <= 0 || item.bytes == 0 || known_seconds_ <= 0) {
    return 1;
  }
  return item.recompute_seconds / static_cast<double>(item.bytes) * (known_bytes_ / known_seconds_);
}

void EvictionPolicy::add(EvictionItem& item) {
  if (items_.insert(&item).second) {
    bytes_ += item.bytes;
  }
}

void EvictionPolicy::remove(EvictionItem& item) {
  if (items_.erase(&item) > 0) {
    bytes_ -= item.bytes;
  }
}

}  // namespace promptcached::kv
