#include "core/kv/module_pool.h"

#include <algorithm>
#include <cassert>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/kv/eviction_policy.h"
#include "core/kv/kv_budget.h"
#include "core/kv/module_entry.h"

namespace promptcached::kv {

using TimePoint = std::chrono::steady_clock::time_point;

struct ModulePool::Impl {
  struct Eviction {
    EvictionReason reason;
    std::size_t bytes;
  };
  // What has to be told once the lock is given back.
  struct Evictions {
    std::vector<Eviction> gone;
    std::vector<ModuleEntry*> leaving;  // each with a pin for on_leave
  };

  Impl(const Options& pool_options, const KvGeometry& kv_geometry, std::unique_ptr<KvAllocator> allocator)
      : options(pool_options),
        geometry(kv_geometry),
        budget({.capacity_bytes = pool_options.capacity_bytes,
                .bytes_per_block = kv_geometry.bytes(pool_options.block_tokens),
                .poison = pool_options.poison},
               std::move(allocator)),
        policy(pool_options.eviction) {}

  const Options options;
  const KvGeometry geometry;

  // Guards everything below. Memory is allocated and freed under it as well, so that no thread can spend bytes that
  // are counted free but not yet given back. Only the engine thread does that in numbers; what others wait for is at
  // worst the unmapping of one module.
  mutable std::mutex mutex;
  KvBudget budget;
  std::list<ModuleEntry> entries;                                     // all of them, detached ones included
  std::unordered_map<ModuleKey, ModuleEntry*, ModuleKeyHash> by_key;  // being encoded, or published
  EvictionPolicy policy;                                              // the evictable ones among the published
  std::int64_t published = 0;                                         // prefix blocks among them
  std::int64_t published_prefix = 0;                                  // those
  std::size_t prefix_bytes = 0;
  std::size_t leaving_bytes = 0;  // will be free when lower tiers have them, unless they are pinned before

  TimePoint now() const { return options.now ? options.now() : std::chrono::steady_clock::now(); }

  // Called without the lock: what it calls may take locks of its own, or ask the pool.
  void report(ModulePool& pool, const Evictions& evictions) const {
    if (options.on_evict) {
      for (const Eviction& eviction : evictions.gone) {
        options.on_evict(eviction.reason, eviction.bytes);
      }
    }
    for (ModuleEntry* const entry : evictions.leaving) {
      options.on_leave(ModulePin(&pool, entry, /*is_use=*/false));
    }
  }

  // ---- The functions below need the lock. ----

  ModuleEntry* find(const ModuleKey& key) const {
    const auto found = by_key.find(key);
    return found == by_key.end() ? nullptr : found->second;
  }
  // A published module whose time has not run out.
  ModuleEntry* find_usable(const ModuleKey& key, TimePoint at) const {
    ModuleEntry* const entry = find(key);
    const bool usable = entry != nullptr && entry->state == ModuleState::kPublished && !entry->expired(at);
    return usable ? entry : nullptr;
  }

  void touch(ModuleEntry& entry, TimePoint at) {
    policy.touch(entry);
    entry.last_use = at;
  }
  void count_use(ModuleEntry& entry, TimePoint at) {
    policy.count_use(entry);
    entry.last_use = at;
  }

  // Findable no longer; the memory stays for those who hold pins.
  void detach(ModuleEntry& entry) {
    policy.remove(entry);
    stay(entry);
    if (entry.state == ModuleState::kPublished) {
      --published;
      published_prefix -= entry.key.is_prefix() ? 1 : 0;
    }
    if (entry.state != ModuleState::kDetached) {
      by_key.erase(entry.key);
    }
    entry.state = ModuleState::kDetached;
  }

  void erase(ModuleEntry& entry) {
    assert(entry.pins == 0);
    detach(entry);
    if (entry.kv.data != nullptr) {
      budget.free_module(entry.kv.data, entry.bytes);
    }
    prefix_bytes -= entry.key.is_prefix() ? entry.bytes : 0;
    entries.erase(entry.self);
  }

  void evict(ModuleEntry& entry, EvictionReason reason, Evictions& evictions) {
    evictions.gone.push_back({reason, entry.bytes});
    erase(entry);
  }

  // Its memory is given back when a lower tier has it.
  void let_leave(ModuleEntry& entry, Evictions& evictions) {
    add_pin(entry);
    entry.leaving = true;
    leaving_bytes += entry.bytes;
    evictions.leaving.push_back(&entry);
  }

  void stay(ModuleEntry& entry) {
    if (entry.leaving) {
      entry.leaving = false;
      leaving_bytes -= entry.bytes;
    }
  }

  void evict_expired(TimePoint at, Evictions& evictions) {
    for (auto it = entries.begin(); it != entries.end();) {
      ModuleEntry& entry = *it++;
      if (entry.expired(at)) {
        evict(entry, EvictionReason::kTtl, evictions);
      }
    }
  }

  // Makes free_bytes() at least `bytes`, or has what is missing leave for a lower tier and answers false. Changes
  // nothing when it cannot succeed: that is known before anything goes.
  bool make_room(std::size_t bytes, TimePoint at, Evictions& evictions) {
    if (budget.free_bytes() >= bytes) {
      return true;
    }
    if (budget.free_bytes() + leaving_bytes + policy.bytes() < bytes) {
      return false;
    }
    evict_expired(at, evictions);
    while (budget.free_bytes() + leaving_bytes < bytes) {
      auto& next = static_cast<ModuleEntry&>(policy.next());
      if (options.is_kept_below && options.is_kept_below(next.key)) {
        let_leave(next, evictions);
      } else {
        evict(next, EvictionReason::kCapacity, evictions);
      }
    }
    return budget.free_bytes() >= bytes;
  }

  // `key` is null for a private entry.
  ModuleEntry& add_entry(const ModuleKey* key, std::byte* data, std::int32_t tokens, std::int32_t extra_tokens,
                         TimePoint at) {
    ModuleEntry& entry = entries.emplace_front();
    entry.self = entries.begin();
    entry.kv = {data, tokens, extra_tokens};
    entry.bytes = geometry.bytes(entry.kv.total_tokens());
    entry.pins = 1;
    entry.last_use = at;
    if (key == nullptr) {
      entry.state = ModuleState::kDetached;
    } else {
      entry.key = *key;
      by_key.emplace(*key, &entry);
      prefix_bytes += key->is_prefix() ? entry.bytes : 0;
    }
    return entry;
  }

  // The latter half of publish().
  void become_published(ModuleEntry& entry, const ModuleWorth& worth, TimePoint at) {
    entry.state = ModuleState::kPublished;
    ++published;
    published_prefix += entry.key.is_prefix() ? 1 : 0;
    entry.recompute_seconds = worth.recompute_seconds;
    if (worth.frequency > 0) {
      entry.frequency = worth.frequency;
      policy.adopt(entry);
    }
    count_use(entry, at);
  }

  // A new pin that counts as a use, by which whatever was on its way out stays.
  void pin(ModuleEntry& entry, TimePoint at) {
    add_pin(entry);
    stay(entry);
    count_use(entry, at);
  }

  void add_pin(ModuleEntry& entry) {
    policy.remove(entry);
    ++entry.pins;
  }

  void drop_pin(ModuleEntry& entry, TimePoint at, bool is_use) {
    assert(entry.pins > 0);
    if (--entry.pins > 0) {
      return;
    }
    if (entry.state != ModuleState::kPublished) {
      erase(entry);
      return;
    }
    if (is_use) {
      touch(entry, at);
    }
    if (entry.evictable()) {
      policy.add(entry);
    }
  }

  Error no_room(std::size_t bytes) const {
    return make_error(ErrorCode::kQueueFull,
                      "The KV budget has no room for " + std::to_string(bytes) + " bytes now: of " +
                          std::to_string(budget.capacity_bytes()) + " bytes, " +
                          std::to_string(budget.module_bytes() - policy.bytes()) + " are held by modules in use and " +
                          std::to_string(budget.block_bytes()) + " by running requests. Retry later");
  }
  static Error device_full(std::size_t bytes) {
    return make_error(ErrorCode::kQueueFull,
                      "The device has no memory left for " + std::to_string(bytes) + " bytes of KV. Retry later");
  }

  // The body of create() and create_private() (`key` is null); the entry has one pin.
  Result<ModuleEntry*> create(const ModuleKey* key, std::int32_t tokens, std::int32_t extra_tokens,
                              const Retention& retention, TimePoint at, Evictions& evictions) {
    assert(tokens >= 0 && extra_tokens >= 0);
    const std::size_t bytes = geometry.bytes(std::int64_t{tokens} + extra_tokens);
    if (bytes > budget.capacity_bytes()) {
      return make_error(ErrorCode::kTooLargeForCache, "A module of " + std::to_string(bytes) +
                                                          " bytes of KV can never fit into the budget of " +
                                                          std::to_string(budget.capacity_bytes()) + " bytes");
    }
    if (ModuleEntry* const known = key == nullptr ? nullptr : find(*key); known != nullptr) {
      if (!known->expired(at)) {
        return make_error(ErrorCode::kConflict, "The module " + key->hex() + " is in the pool already");
      }
      evict(*known, EvictionReason::kTtl, evictions);
    }
    if (!make_room(bytes, at, evictions)) {
      return no_room(bytes);
    }
    std::byte* const data = bytes == 0 ? nullptr : budget.allocate_module(bytes);
    if (data == nullptr && bytes > 0) {
      return device_full(bytes);
    }
    ModuleEntry& entry = add_entry(key, data, tokens, extra_tokens, at);
    entry.retain(retention);
    return &entry;
  }

  // The entry, with one pin more; nullptr while another fills it.
  ModuleEntry* publish_block(std::byte* data, const ModuleKey& key, std::int32_t tokens, const ModuleWorth& worth,
                             TimePoint at) {
    if (ModuleEntry* const known = find(key); known != nullptr) {
      if (known->state != ModuleState::kPublished) {
        return nullptr;
      }
      pin(*known, at);
      budget.free_block(data);
      return known;
    }
    budget.block_becomes_module();
    ModuleEntry& entry = add_entry(&key, data, tokens, options.block_tokens - tokens, at);
    become_published(entry, worth, at);
    return &entry;
  }

  void release_chain(std::vector<ModuleEntry*>& chain, TimePoint at) {
    const ModuleEntry* behind = nullptr;
    for (auto entry = chain.rbegin(); entry != chain.rend(); ++entry) {
      const bool stays = (*entry)->state == ModuleState::kPublished;
      drop_pin(**entry, at, /*is_use=*/true);
      if (stays && behind != nullptr) {
        policy.outlast(**entry, *behind);
      }
      behind = stays ? *entry : behind;
    }
  }

  Result<std::vector<std::byte*>> allocate_blocks(std::int32_t count, TimePoint at, Evictions& evictions) {
    const std::size_t bytes = budget.bytes_per_block() * static_cast<std::size_t>(count);
    if (!make_room(bytes, at, evictions)) {
      return no_room(bytes);
    }
    std::vector<std::byte*> blocks;
    blocks.reserve(static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) {
      std::byte* const data = budget.allocate_block();
      if (data == nullptr) {
        for (std::byte* block : blocks) {
          budget.free_block(block);
        }
        return device_full(bytes);
      }
      blocks.push_back(data);
    }
    return blocks;
  }

  static ModuleInfo info(const ModuleEntry& entry, TimePoint at) {
    const double idle = entry.pins > 0 ? 0 : std::chrono::duration<double>(at - entry.last_use).count();
    return {.key = entry.key,
            .bytes = entry.bytes,
            .tokens = entry.kv.total_tokens(),
            .pins = entry.pins,
            .hits = entry.hits,
            .idle_seconds = std::max(idle, 0.0),
            .worth = {entry.recompute_seconds, entry.frequency},
            .retention = entry.retention};
  }

  bool check_entry(const ModuleEntry& entry) const {
    const bool findable = find(entry.key) == &entry;
    const bool owned = entry.pins > 0 || entry.state == ModuleState::kPublished;
    const bool evictable = policy.contains(entry);
    return owned && entry.pins >= 0 && evictable == entry.evictable() && entry.priority == entry.retention.priority &&
           findable == (entry.state != ModuleState::kDetached) &&
           (!entry.leaving || (entry.pins > 0 && entry.state == ModuleState::kPublished)) &&
           entry.bytes == geometry.bytes(entry.kv.total_tokens()) && (entry.kv.data != nullptr) == (entry.bytes > 0);
  }

  bool check_integrity() const {
    std::size_t module_bytes = 0;
    std::size_t evictable_bytes = 0;
    std::size_t evictable = 0;
    std::size_t leaving = 0;
    std::size_t findable = 0;
    std::int64_t published_entries = 0;
    std::int64_t prefix_entries = 0;
    std::size_t bytes_of_prefix = 0;
    for (const ModuleEntry& entry : entries) {
      if (!check_entry(entry)) {
        return false;
      }
      module_bytes += entry.bytes;
      evictable_bytes += entry.evictable() ? entry.bytes : 0;
      leaving += entry.leaving ? entry.bytes : 0;
      evictable += entry.evictable() ? 1 : 0;
      findable += entry.state == ModuleState::kDetached ? 0 : 1;
      published_entries += entry.state == ModuleState::kPublished ? 1 : 0;
      prefix_entries += entry.state == ModuleState::kPublished && entry.key.is_prefix() ? 1 : 0;
      bytes_of_prefix += entry.key.is_prefix() ? entry.bytes : 0;
    }
    return budget.check_integrity() && module_bytes == budget.module_bytes() && evictable_bytes == policy.bytes() &&
           evictable == policy.size() && findable == by_key.size() && published_entries == published &&
           leaving == leaving_bytes && prefix_entries == published_prefix && bytes_of_prefix == prefix_bytes &&
           budget.free_bytes() + budget.module_bytes() + budget.block_bytes() == budget.capacity_bytes();
  }

  // ---- Called by pins and blocks ----

  void duplicate_pin(ModuleEntry& entry) {
    const std::lock_guard lock(mutex);
    add_pin(entry);
  }
  void release_pin(ModuleEntry& entry, bool is_use) {
    const TimePoint at = now();
    // A pin may go on any thread: a response's, or the engine's.
    const std::lock_guard lock(mutex);
    drop_pin(entry, at, is_use);
  }
  void release_block(std::byte* data) {
    const std::lock_guard lock(mutex);
    budget.free_block(data);
  }
};

ModulePool::ModulePool(const Options& options, const KvGeometry& geometry, std::unique_ptr<KvAllocator> allocator)
    : impl_(std::make_unique<Impl>(options, geometry, std::move(allocator))) {
  assert(geometry.bytes_per_token() > 0 && options.block_tokens > 0);
}

ModulePool::~ModulePool() {
  assert(impl_->budget.blocks_in_use() == 0);
  assert(std::all_of(impl_->entries.begin(), impl_->entries.end(), [](const auto& entry) { return entry.pins == 0; }));
  for (const ModuleEntry& entry : impl_->entries) {
    if (entry.kv.data != nullptr) {
      impl_->budget.free_module(entry.kv.data, entry.bytes);
    }
  }
}

std::optional<ModulePin> ModulePool::pin(const ModuleKey& key) {
  const TimePoint at = impl_->now();
  Impl::Evictions evictions;
  ModuleEntry* entry = nullptr;
  {
    // Found and pinned in one step: between the two, nobody may evict it.
    const std::lock_guard lock(impl_->mutex);
    entry = impl_->find(key);
    if (entry != nullptr && entry->expired(at)) {
      impl_->evict(*entry, EvictionReason::kTtl, evictions);
      entry = nullptr;
    } else if (entry != nullptr && entry->state == ModuleState::kPublished) {
      impl_->pin(*entry, at);
      ++entry->hits;
    } else {
      entry = nullptr;
    }
  }
  impl_->report(*this, evictions);
  if (entry == nullptr) {
    return std::nullopt;
  }
  return ModulePin(this, entry);
}

bool ModulePool::contains(const ModuleKey& key) const {
  const TimePoint at = impl_->now();
  const std::lock_guard lock(impl_->mutex);
  return impl_->find_usable(key, at) != nullptr;
}

bool ModulePool::expects(const ModuleKey& key) const {
  const std::lock_guard lock(impl_->mutex);
  const ModuleEntry* const entry = impl_->find(key);
  return entry != nullptr && entry->state == ModuleState::kEncoding;
}

std::optional<ModulePin> ModulePool::hold(const ModuleKey& key) {
  const TimePoint at = impl_->now();
  const std::lock_guard lock(impl_->mutex);
  ModuleEntry* const entry = impl_->find_usable(key, at);
  if (entry == nullptr) {
    return std::nullopt;
  }
  impl_->add_pin(*entry);
  return ModulePin(this, entry, /*is_use=*/false);
}

bool ModulePool::leave(ModulePin pin) {
  Impl::Evictions evictions;
  {
    const std::lock_guard lock(impl_->mutex);
    ModuleEntry& entry = *pin.entry_;
    if (entry.leaving && entry.pins == 1) {
      pin.entry_ = nullptr;  // the pin goes with the entry
      entry.pins = 0;
      impl_->evict(entry, EvictionReason::kCapacity, evictions);
    } else {
      impl_->stay(entry);
    }
  }
  impl_->report(*this, evictions);
  return !evictions.gone.empty();
}

Result<ModulePin> ModulePool::create(const ModuleKey& key, std::int32_t tokens, std::int32_t extra_tokens,
                                     const Retention& retention) {
  return create_entry(&key, tokens, extra_tokens, retention);
}

Result<ModulePin> ModulePool::create_private(std::int32_t tokens, std::int32_t extra_tokens) {
  return create_entry(nullptr, tokens, extra_tokens, Retention{});
}

Result<ModulePin> ModulePool::create_entry(const ModuleKey* key, std::int32_t tokens, std::int32_t extra_tokens,
                                           const Retention& retention) {
  const TimePoint at = impl_->now();
  Impl::Evictions evictions;
  const Result<ModuleEntry*> created = [&] {
    // One step, so that room made here cannot be taken by another thread before it is used.
    const std::lock_guard lock(impl_->mutex);
    return impl_->create(key, tokens, extra_tokens, retention, at, evictions);
  }();
  impl_->report(*this, evictions);
  if (!created) {
    return created.error();
  }
  return ModulePin(this, *created);
}

void ModulePool::publish(const ModulePin& pin, const ModuleWorth& worth) {
  assert(pin.pool_ == this);
  const TimePoint at = impl_->now();
  // The lock also orders the encoder's writes before the reads of whoever finds the module.
  const std::lock_guard lock(impl_->mutex);
  ModuleEntry& entry = *pin.entry_;
  if (entry.state == ModuleState::kEncoding) {  // not removed meanwhile
    impl_->become_published(entry, worth, at);
  }
}

std::optional<ModulePin> ModulePool::publish_block(SequenceBlock& block, const ModuleKey& key, std::int32_t tokens,
                                                   const ModuleWorth& worth) {
  assert(block.pool_ == this && tokens > 0 && tokens <= block_tokens());
  const TimePoint at = impl_->now();
  const std::lock_guard lock(impl_->mutex);
  ModuleEntry* const entry = impl_->publish_block(block.data_, key, tokens, worth, at);
  if (entry == nullptr) {
    return std::nullopt;
  }
  block.data_ = nullptr;  // the pool has it
  return ModulePin(this, entry);
}

void ModulePool::release_chain(std::vector<ModulePin> chain) {
  std::vector<ModuleEntry*> entries;
  entries.reserve(chain.size());
  for (ModulePin& pin : chain) {
    assert(pin.pool_ == this);
    entries.push_back(std::exchange(pin.entry_, nullptr));
  }
  const TimePoint at = impl_->now();
  const std::lock_guard lock(impl_->mutex);
  impl_->release_chain(entries, at);
}

Result<std::vector<SequenceBlock>> ModulePool::allocate_blocks(std::int32_t count) {
  assert(count >= 0);
  const TimePoint at = impl_->now();
  Impl::Evictions evictions;
  const Result<std::vector<std::byte*>> allocated = [&] {
    const std::lock_guard lock(impl_->mutex);  // as in create_entry
    return impl_->allocate_blocks(count, at, evictions);
  }();
  impl_->report(*this, evictions);
  if (!allocated) {
    return allocated.error();
  }
  std::vector<SequenceBlock> blocks;
  blocks.reserve(allocated->size());
  for (std::byte* data : *allocated) {
    blocks.push_back(SequenceBlock(this, data));
  }
  return blocks;
}

Result<SequenceBlock> ModulePool::allocate_block() {
  Result<std::vector<SequenceBlock>> blocks = allocate_blocks(1);
  if (!blocks) {
    return blocks.error();
  }
  return std::move(blocks->front());
}

void ModulePool::set_retention(const ModuleKey& key, const Retention& retention) {
  const std::lock_guard lock(impl_->mutex);
  ModuleEntry* const entry = impl_->find(key);
  if (entry == nullptr) {
    return;
  }
  impl_->policy.remove(*entry);  // it is sorted by what changes
  entry->retain(retention);
  if (entry->evictable()) {
    impl_->policy.add(*entry);
  }
}

void ModulePool::remove(const ModuleKey& key, EvictionReason reason) {
  Impl::Evictions evictions;
  {
    const std::lock_guard lock(impl_->mutex);
    ModuleEntry* const entry = impl_->find(key);
    if (entry == nullptr) {
      return;
    }
    if (entry->state == ModuleState::kPublished) {
      evictions.gone.push_back({reason, entry->bytes});
    }
    impl_->detach(*entry);
    if (entry->pins == 0) {
      impl_->erase(*entry);
    }
  }
  impl_->report(*this, evictions);
}

std::size_t ModulePool::drop_unpinned() {
  Impl::Evictions evictions;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    bytes = impl_->policy.bytes();
    while (!impl_->policy.empty()) {
      impl_->evict(static_cast<ModuleEntry&>(impl_->policy.next()), EvictionReason::kRequested, evictions);
    }
    impl_->budget.release_spare();
  }
  impl_->report(*this, evictions);
  return bytes;
}

void ModulePool::drop_expired() {
  const TimePoint at = impl_->now();
  Impl::Evictions evictions;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->evict_expired(at, evictions);
  }
  impl_->report(*this, evictions);
}

bool ModulePool::expects_memory() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->leaving_bytes > 0;
}

PoolStats ModulePool::stats() const {
  const std::lock_guard lock(impl_->mutex);  // the numbers belong to one moment
  const KvBudget& budget = impl_->budget;
  return {.capacity_bytes = budget.capacity_bytes(),
          .module_bytes = budget.module_bytes() - impl_->prefix_bytes,
          .prefix_bytes = impl_->prefix_bytes,
          .pinned_bytes = budget.module_bytes() - impl_->policy.bytes(),
          .block_bytes = budget.block_bytes(),
          .free_bytes = budget.free_bytes(),
          .entries = impl_->published - impl_->published_prefix,
          .prefix_entries = impl_->published_prefix,
          .free_blocks = static_cast<std::int64_t>(budget.free_bytes() / budget.bytes_per_block())};
}

std::vector<ModuleInfo> ModulePool::list() const {
  const TimePoint at = impl_->now();
  const std::lock_guard lock(impl_->mutex);
  std::vector<const ModuleEntry*> usable;
  for (const ModuleEntry& entry : impl_->entries) {
    if (entry.state == ModuleState::kPublished && !entry.key.is_prefix() && !entry.expired(at)) {
      usable.push_back(&entry);
    }
  }
  std::sort(usable.begin(), usable.end(), [](const auto* a, const auto* b) { return a->order > b->order; });
  std::vector<ModuleInfo> infos;
  infos.reserve(usable.size());
  for (const ModuleEntry* entry : usable) {
    infos.push_back(Impl::info(*entry, at));
  }
  return infos;
}

std::optional<ModuleInfo> ModulePool::info(const ModuleKey& key) const {
  const TimePoint at = impl_->now();
  const std::lock_guard lock(impl_->mutex);
  const ModuleEntry* const entry = impl_->find_usable(key, at);
  return entry == nullptr ? std::nullopt : std::optional(Impl::info(*entry, at));
}

bool ModulePool::check_integrity() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->check_integrity();
}

const KvGeometry& ModulePool::geometry() const { return impl_->geometry; }
KvAllocator& ModulePool::memory() const { return impl_->budget.allocator(); }
std::int32_t ModulePool::block_tokens() const { return impl_->options.block_tokens; }

ModulePin::ModulePin(ModulePin&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      entry_(std::exchange(other.entry_, nullptr)),
      is_use_(other.is_use_) {}

ModulePin& ModulePin::operator=(ModulePin&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    entry_ = std::exchange(other.entry_, nullptr);
    is_use_ = other.is_use_;
  }
  return *this;
}

ModulePin::~ModulePin() { release(); }

const ModuleKv& ModulePin::kv() const {
  assert(entry_ != nullptr);
  return entry_->kv;
}

const ModuleKey& ModulePin::key() const {
  assert(entry_ != nullptr);
  return entry_->key;
}

ModulePin ModulePin::duplicate() const {
  if (entry_ != nullptr) {
    pool_->impl_->duplicate_pin(*entry_);
  }
  return ModulePin(pool_, entry_, is_use_);
}

void ModulePin::release() {
  if (entry_ != nullptr) {
    pool_->impl_->release_pin(*entry_, is_use_);
    pool_ = nullptr;
    entry_ = nullptr;
  }
}

SequenceBlock::SequenceBlock(SequenceBlock&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}

SequenceBlock& SequenceBlock::operator=(SequenceBlock&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) {
      pool_->impl_->release_block(data_);
    }
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

SequenceBlock::~SequenceBlock() {
  if (data_ != nullptr) {
    pool_->impl_->release_block(data_);
  }
}

}  // namespace promptcached::kv
