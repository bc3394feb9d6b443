// TierIndex: what a tier holds, and which of it goes first. Private to core/kv/tiers.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/kv/kv_record.h"
#include "core/kv/tiers/tier.h"

namespace promptcached::kv {

// Entries by key, each with a `Value` of the tier's own. Not thread-safe: the tier's lock guards it.
template <typename Value>
class TierIndex final {
 public:
  using Time = RecordHeader::Time;

  struct Entry {
    ModuleKey key;
    std::size_t bytes = 0;  // in the tier
    std::int32_t tokens = 0;
    std::int64_t hits = 0;
    std::uint64_t use = 0;
    Time last_use;
    Retention retention;
    Value value;

    bool evictable() const { return !retention.pin; }
    bool expired(Time now) const {
      return evictable() && retention.ttl.has_value() && now - last_use >= *retention.ttl;
    }
  };

  // The key must not be in it.
  Entry& add(const RecordHeader& header, std::size_t bytes, Value value) {
    Entry entry;
    entry.key = header.key;
    entry.bytes = bytes;
    entry.tokens = header.total_tokens();
    entry.use = ++uses_;
    entry.last_use = header.last_use;
    entry.retention = header.retention;
    entry.value = std::move(value);
    const auto [place, is_new] = entries_.emplace(header.key, std::move(entry));
    assert(is_new);
    used_bytes_ += bytes;
    pinned_bytes_ += place->second.evictable() ? 0 : bytes;
    order(place->second);
    return place->second;
  }

  Entry* find(const ModuleKey& key) {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  const Entry* find(const ModuleKey& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  bool contains(const ModuleKey& key) const { return entries_.contains(key); }

  Value take(Entry& entry) {
    Value value = std::move(entry.value);
    leave_order(entry);
    used_bytes_ -= entry.bytes;
    pinned_bytes_ -= entry.evictable() ? 0 : entry.bytes;
    entries_.erase(ModuleKey(entry.key));
    return value;
  }

  void use(Entry& entry, Time now) {
    leave_order(entry);
    entry.use = ++uses_;
    entry.last_use = now;
    order(entry);
  }

  void set_retention(Entry& entry, const Retention& retention) {
    leave_order(entry);
    pinned_bytes_ -= entry.evictable() ? 0 : entry.bytes;
    entry.retention = retention;
    pinned_bytes_ += entry.evictable() ? 0 : entry.bytes;
    order(entry);
  }

  // The entry that goes first; nullptr when none may go.
  Entry* next_to_go() { return order_.empty() ? nullptr : *order_.begin(); }

  std::vector<ModuleKey> expired(Time now) const {
    std::vector<ModuleKey> keys;
    for (const auto& [key, entry] : entries_) {
      if (entry.expired(now)) {
        keys.push_back(key);
      }
    }
    return keys;
  }

  std::size_t used_bytes() const { return used_bytes_; }
  std::size_t evictable_bytes() const { return used_bytes_ - pinned_bytes_; }
  TierStats stats(std::size_t capacity_bytes) const {
    return {capacity_bytes, used_bytes_, pinned_bytes_, static_cast<std::int64_t>(entries_.size())};
  }
  std::vector<ModuleInfo> list(Time now) const {
    std::vector<const Entry*> sorted;
    for (const auto& [key, entry] : entries_) {
      sorted.push_back(&entry);
    }
    std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) { return a->use > b->use; });
    std::vector<ModuleInfo> infos;
    for (const Entry* entry : sorted) {
      const double idle = std::chrono::duration<double>(now - entry->last_use).count();
      infos.push_back({.key = entry->key,
                       .bytes = entry->bytes,
                       .tokens = entry->tokens,
                       .pins = 0,
                       .hits = entry->hits,
                       .idle_seconds = std::max(idle, 0.0),
                       .retention = entry->retention});
    }
    return infos;
  }

 private:
  struct GoesBefore {
    bool operator()(const Entry* a, const Entry* b) const {
      if (a->retention.priority != b->retention.priority) {
        return a->retention.priority < b->retention.priority;
      }
      return a->use < b->use;
    }
  };

  void order(Entry& entry) {
    if (entry.evictable()) {
      order_.insert(&entry);
    }
  }
  void leave_order(Entry& entry) { order_.erase(&entry); }

  std::unordered_map<ModuleKey, Entry, ModuleKeyHash> entries_;  // nodes do not move
  std::set<Entry*, GoesBefore> order_;
  std::size_t used_bytes_ = 0;
  std::size_t pinned_bytes_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace promptcached::kv
