// EvictionPolicy: which module goes first. Private to core/kv.
#pragma once

#include <cstddef>
#include <set>

#include "core/kv/module_entry.h"

namespace promptcached::kv {

// The evictable modules in the order in which they go: lowest priority first, then least recently used. An entry's
// priority and use must not change while it is in here. Not thread-safe: the pool's lock guards it.
class EvictionPolicy final {
 public:
  void add(ModuleEntry& entry) {
    if (candidates_.insert(&entry).second) {
      bytes_ += entry.bytes;
    }
  }
  void remove(ModuleEntry& entry) {
    if (candidates_.erase(&entry) > 0) {
      bytes_ -= entry.bytes;
    }
  }
  bool contains(const ModuleEntry& entry) const { return candidates_.contains(&entry); }

  bool empty() const { return candidates_.empty(); }
  ModuleEntry& next() const { return **candidates_.begin(); }  // must not be empty
  std::size_t bytes() const { return bytes_; }                 // of all of them
  std::size_t size() const { return candidates_.size(); }

 private:
  struct GoesBefore {
    using is_transparent = void;
    bool operator()(const ModuleEntry* a, const ModuleEntry* b) const {
      if (a->retention.priority != b->retention.priority) {
        return a->retention.priority < b->retention.priority;
      }
      return a->use < b->use;  // unique in a pool
    }
  };

  std::set<ModuleEntry*, GoesBefore> candidates_;
  std::size_t bytes_ = 0;
};

}  // namespace promptcached::kv
