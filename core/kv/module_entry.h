// ModuleEntry: what the pool knows of one module. Private to core/kv.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>

#include "core/kv/module_pool.h"

namespace promptcached::kv {

// In the order of a module's life.
enum class ModuleState {
  kEncoding,   // created, being filled by its encoder
  kPublished,  // findable; immutable
  kDetached,   // private, or removed: only its pins keep it
};

struct ModuleEntry {
  ModuleKey key;  // all zero and unused in a private entry
  ModuleKv kv;    // never changes while the entry lives, so pins read it without the lock
  std::size_t bytes = 0;
  ModuleState state = ModuleState::kEncoding;
  Retention retention;
  std::int64_t pins = 0;
  bool leaving = false;  // evicted, and held by whoever saves it in a lower tier
  std::int64_t hits = 0;
  std::uint64_t use = 0;  // grows with each use in the pool: the order of uses, also within one tick of the clock
  std::chrono::steady_clock::time_point last_use;
  std::list<ModuleEntry>::iterator self;

  bool evictable() const { return state == ModuleState::kPublished && pins == 0 && !retention.pin; }
  bool expired(std::chrono::steady_clock::time_point now) const {
    return evictable() && retention.ttl.has_value() && now - last_use >= *retention.ttl;
  }
};

}  // namespace promptcached::kv
