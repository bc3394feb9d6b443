// TierIndex: what a tier holds, and which of it goes first. Private to core/kv/tiers.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/kv/eviction_policy.h"
#include "core/kv/kv_record.h"
#include "core/kv/tiers/tier.h"

namespace promptcached::kv {

// Entries by key, each with a `Value` of the tier's own. Not thread-safe: the tier's lock guards it.
template <typename Value>
class TierIndex final {
 public:
  using Time = RecordHeader::Time;

  struct Entry : EvictionItem {  // `bytes` are those in the tier
    ModuleKey key;
    std::int32_t tokens = 0;
    std::int64_t hits = 0;
    Time last_use;
    Retention retention;
    Value value;

    void retain(const Retention& wanted) {
      retention = wanted;
      priority = wanted.priority;
    }
    bool evictable() const { return !retention.pin; }
    bool expired(Time now) const {
      return evictable() && retention.ttl.has_value() && now - last_use >= *retention.ttl;
    }
  };

  explicit TierIndex(EvictionKind kind = EvictionKind::kCost) : policy_(kind) {}

  // The key must not be in it.
  Entry& add(const RecordHeader& header, std::size_t bytes, Value value) {
    Entry entry;
    entry.key = header.key;
    entry.bytes = bytes;
    entry.recompute_seconds = header.worth.recompute_seconds;
    entry.frequency = header.worth.frequency;
    entry.tokens = header.total_tokens();
    entry.last_use = header.last_use;
    entry.retain(header.retention);
    entry.value = std::move(value);
    const auto [place, is_new] = entries_.emplace(header.key, std::move(entry));
    assert(is_new);
    count(place->second, 1);
    header.worth.frequency == 0 ? policy_.count_use(place->second) : policy_.adopt(place->second);
    offer(place->second);
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
    policy_.remove(entry);
    count(entry, -1);
    entries_.erase(ModuleKey(entry.key));
    return value;
  }

  void clear() {
    for (auto& [key, entry] : entries_) {
      policy_.remove(entry);
    }
    entries_.clear();
    used_bytes_ = prefix_bytes_ = 0;
    prefix_entries_ = 0;
  }

  void use(Entry& entry, Time now) {
    policy_.remove(entry);
    policy_.count_use(entry);
    entry.last_use = now;
    offer(entry);
  }

  void set_retention(Entry& entry, const Retention& retention) {
    policy_.remove(entry);
    entry.retain(retention);
    offer(entry);
  }

  // The entry that goes first; nullptr when none may go.
  Entry* next_to_go() { return policy_.empty() ? nullptr : static_cast<Entry*>(&policy_.next()); }

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
  std::size_t evictable_bytes() const { return policy_.bytes(); }
  TierStats stats(std::size_t capacity_bytes) const {
    return {.capacity_bytes = capacity_bytes,
            .used_bytes = used_bytes_,
            .pinned_bytes = used_bytes_ - evictable_bytes(),
            .entries = static_cast<std::int64_t>(entries_.size()) - prefix_entries_,
            .prefix_entries = prefix_entries_,
            .prefix_bytes = prefix_bytes_};
  }
  std::vector<ModuleInfo> list(Time now) const {
    std::vector<const Entry*> sorted;
    for (const auto& [key, entry] : entries_) {
      if (!key.is_prefix()) {
        sorted.push_back(&entry);
      }
    }
    std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) { return a->order > b->order; });
    std::vector<ModuleInfo> infos;
    for (const Entry* entry : sorted) {
      const double idle = std::chrono::duration<double>(now - entry->last_use).count();
      infos.push_back({.key = entry->key,
                       .bytes = entry->bytes,
                       .tokens = entry->tokens,
                       .pins = 0,
                       .hits = entry->hits,
                       .idle_seconds = std::max(idle, 0.0),
                       .worth = {entry->recompute_seconds, entry->frequency},
                       .retention = entry->retention});
    }
    return infos;
  }

 private:
  // `sign`: 1 for one that comes, -1 for one that goes.
  void count(const Entry& entry, int sign) {
    const std::size_t bytes = sign > 0 ? entry.bytes : -entry.bytes;  // modulo 2^64
    used_bytes_ += bytes;
    if (entry.key.is_prefix()) {
      prefix_bytes_ += bytes;
      prefix_entries_ += sign;
    }
  }
  void offer(Entry& entry) {
    if (entry.evictable()) {
      policy_.add(entry);
    }
  }

  std::unordered_map<ModuleKey, Entry, ModuleKeyHash> entries_;  // nodes do not move
  EvictionPolicy policy_;
  std::size_t used_bytes_ = 0;
  std::size_t prefix_bytes_ = 0;  // of those
  std::int64_t prefix_entries_ = 0;
};

}  // namespace promptcached::kv
