// PoolModel: what ModulePool promises, in the plainest form: lists and searches. The property test compares the two.
//
// What a module is worth is EvictionPolicy's arithmetic here too (it has tests of its own); what counts as a use, who
// is evictable and who goes first is not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/kv/module_pool.h"
#include "tests/unit/kv/pool_fixture.h"

namespace promptcached::kv {

class PoolModel {
 public:
  struct Module {
    int id = 0;   // of this entry
    int key = 0;  // 0: private
    std::int64_t tokens = 0;
    bool published = false;
    bool findable = false;  // by create(), at least
    int pins = 0;
    Retention retention;
    EvictionItem item;
    double used_at = 0;  // seconds
  };

  PoolModel(std::int64_t capacity, std::int64_t block_tokens, EvictionKind eviction)
      : capacity_(capacity), block_tokens_(block_tokens), policy_(eviction) {}

  double now = 0;
  int wrong_order = 0;  // the policy's next was not the one that a search finds
  std::vector<Evicted> evicted;

  // The entry's id, or the error.
  Result<int> create(int key, std::int64_t tokens, const Retention& retention) {
    if (tokens > capacity_) {
      return make_error(ErrorCode::kTooLargeForCache, "");
    }
    if (Module* known = key == 0 ? nullptr : find(key)) {
      if (!expired(*known)) {
        return make_error(ErrorCode::kConflict, "");
      }
      evict(*known, EvictionReason::kTtl);
    }
    if (!make_room(tokens)) {
      return make_error(ErrorCode::kQueueFull, "");
    }
    modules_.push_back({.id = ++ids_,
                        .key = key,
                        .tokens = tokens,
                        .published = false,
                        .findable = key != 0,
                        .pins = 1,
                        .retention = key == 0 ? Retention{} : retention,
                        .item = {.bytes = kTinyGeometry.bytes(tokens), .priority = retention.priority},
                        .used_at = now});
    return ids_;
  }

  bool allocate_blocks(int count) {
    if (!make_room(count * block_tokens_)) {
      return false;
    }
    blocks_ += count;
    return true;
  }
  void free_block() { --blocks_; }

  std::optional<int> pin(int key) {
    Module* module = find(key);
    if (module == nullptr || !module->published) {
      return std::nullopt;
    }
    if (expired(*module)) {
      evict(*module, EvictionReason::kTtl);
      return std::nullopt;
    }
    ++module->pins;
    use(*module);
    return module->id;
  }
  void duplicate(int id) {
    ++by_id(id).pins;
    offer_evictable();
  }
  void release(int id) {
    Module& module = by_id(id);
    if (--module.pins == 0) {
      if (module.published && module.findable) {
        policy_.touch(module.item);
        module.used_at = now;
        offer_evictable();
      } else {
        erase(id);
      }
    }
  }
  void publish(int id, double recompute_seconds) {
    Module& module = by_id(id);
    if (module.findable && !module.published) {
      module.published = true;
      module.item.recompute_seconds = recompute_seconds;
      use(module);
    }
  }
  std::optional<int> publish_block(int key, double recompute_seconds) {
    if (Module* known = find(key)) {
      if (!known->published) {
        return std::nullopt;
      }
      ++known->pins;
      --blocks_;
      use(*known);
      return known->id;
    }
    --blocks_;
    modules_.push_back({.id = ++ids_,
                        .key = key,
                        .tokens = block_tokens_,
                        .published = false,
                        .findable = true,
                        .pins = 1,
                        .retention = {},
                        .item = {.bytes = kTinyGeometry.bytes(block_tokens_)},
                        .used_at = now});
    publish(ids_, recompute_seconds);
    return ids_;
  }
  void set_retention(int key, const Retention& retention) {
    if (Module* module = find(key)) {
      policy_.remove(module->item);
      module->retention = retention;
      module->item.priority = retention.priority;
      offer_evictable();
    }
  }
  void remove(int key) {
    if (Module* module = find(key)) {
      if (module->published) {
        evicted.push_back({EvictionReason::kRequested, kTinyGeometry.bytes(module->tokens)});
      }
      module->findable = false;
      policy_.remove(module->item);
      if (module->pins == 0) {
        erase(module->id);
      }
    }
  }
  std::int64_t drop_unpinned() {
    std::int64_t tokens = 0;
    while (Module* module = victim()) {
      tokens += module->tokens;
      evict(*module, EvictionReason::kRequested);
    }
    return tokens;
  }
  void drop_expired() {
    for (auto it = modules_.begin(); it != modules_.end();) {
      Module& module = *it++;
      if (expired(module)) {
        evict(module, EvictionReason::kTtl);
      }
    }
  }

  // Keys of what pin() would find, most recently used first.
  std::vector<int> list() const {
    std::vector<Module> usable;
    std::copy_if(modules_.begin(), modules_.end(), std::back_inserter(usable),
                 [this](const Module& m) { return m.published && m.findable && !expired(m); });
    std::sort(usable.begin(), usable.end(),
              [](const Module& a, const Module& b) { return a.item.order > b.item.order; });
    std::vector<int> keys;
    keys.reserve(usable.size());
    for (const Module& module : usable) {
      keys.push_back(module.key);
    }
    return keys;
  }

  PoolStats stats() const {
    PoolStats stats;
    std::int64_t module_tokens = 0;
    std::int64_t pinned_tokens = 0;
    for (const Module& module : modules_) {
      module_tokens += module.tokens;
      pinned_tokens += evictable(module) ? 0 : module.tokens;
      stats.entries += module.published && module.findable ? 1 : 0;
    }
    const std::int64_t free_tokens = capacity_ - module_tokens - blocks_ * block_tokens_;
    stats.capacity_bytes = kTinyGeometry.bytes(capacity_);
    stats.module_bytes = kTinyGeometry.bytes(module_tokens);
    stats.pinned_bytes = kTinyGeometry.bytes(pinned_tokens);
    stats.block_bytes = kTinyGeometry.bytes(blocks_ * block_tokens_);
    stats.free_bytes = kTinyGeometry.bytes(free_tokens);
    stats.free_blocks = free_tokens / block_tokens_;
    return stats;
  }

 private:
  static bool evictable(const Module& m) { return m.published && m.findable && m.pins == 0 && !m.retention.pin; }
  bool expired(const Module& m) const {
    return evictable(m) && m.retention.ttl && now - m.used_at >= m.retention.ttl->count();
  }
  std::int64_t free_tokens() const {
    return static_cast<std::int64_t>(stats().free_bytes / kTinyGeometry.bytes_per_token());
  }

  Module* find(int key) {
    const auto found =
        std::find_if(modules_.begin(), modules_.end(), [key](const Module& m) { return m.findable && m.key == key; });
    return found == modules_.end() ? nullptr : &*found;
  }
  Module& by_id(int id) {
    return *std::find_if(modules_.begin(), modules_.end(), [id](const Module& m) { return m.id == id; });
  }
  void use(Module& module) {
    offer_evictable();
    policy_.count_use(module.item);
    module.used_at = now;
  }
  void offer_evictable() {
    for (Module& module : modules_) {
      evictable(module) ? policy_.add(module.item) : policy_.remove(module.item);
    }
  }
  void erase(int id) {
    const auto found = std::find_if(modules_.begin(), modules_.end(), [id](const Module& m) { return m.id == id; });
    policy_.remove(found->item);
    modules_.erase(found);
  }
  void evict(const Module& module, EvictionReason reason) {
    evicted.push_back({reason, kTinyGeometry.bytes(module.tokens)});
    erase(module.id);
  }
  Module* victim() {
    const auto order = [](const Module& m) { return std::tuple(m.retention.priority, m.item.value, m.item.order); };
    Module* first = nullptr;
    for (Module& module : modules_) {
      if (evictable(module) && (first == nullptr || order(module) < order(*first))) {
        first = &module;
      }
    }
    return first;
  }
  bool make_room(std::int64_t tokens) {
    if (free_tokens() >= tokens) {
      return true;
    }
    std::int64_t possible = free_tokens();
    for (const Module& module : modules_) {
      possible += evictable(module) ? module.tokens : 0;
    }
    if (possible < tokens) {
      return false;
    }
    drop_expired();
    while (free_tokens() < tokens) {
      Module& module = *victim();
      wrong_order += &policy_.next() == &module.item ? 0 : 1;
      evict(module, EvictionReason::kCapacity);
    }
    return true;
  }

  std::int64_t capacity_;
  std::int64_t block_tokens_;
  std::int64_t blocks_ = 0;
  int ids_ = 0;
  EvictionPolicy policy_;
  std::list<Module> modules_;
};

}  // namespace promptcached::kv
