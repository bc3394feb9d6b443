// ModuleEntry: what the pool knows of one module. Private to core/kv.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>

#include "core/kv/eviction_policy.h"
#include "core/kv/module_pool.h"

namespace promptcached::kv {

// In the order of a module's life.
enum class ModuleState {
  kEncoding,   // created, being filled by its encoder
  kPublished,  // findable; immutable
  kDetached,   // private, or removed: only its pins keep it
};

// `priority` follows `retention`.
struct ModuleEntry final : EvictionItem {
  ModuleKey key;  // all zero and unused in a private entry
  ModuleKv kv;    // never changes while the entry lives, so pins read it without the lock
  ModuleState state = ModuleState::kEncoding;
  Retention retention;
  std::int64_t pins = 0;
  bool leaving = false;  // evicted, and held by whoever saves it in a lower tier
  std::int64_t hits = 0;
  std::chrono::steady_clock::time_point last_use;
  std::list<ModuleEntry>::iterator self;

  void retain(const Retention& wanted) {
    retention = wanted;
    priority = wanted.priority;
  }
  bool evictable() const { return state == ModuleState::kPublished && pins == 0 && !retention.pin; }
  bool expired(std::chrono::steady_clock::time_point now) const {
    return evictable() && retention.ttl.has_value() && now - last_use >= *retention.ttl;
  }
};

}  // namespace promptcached::kv
