// ModulePool: the one memory budget that holds modules' KV and sequences' own blocks.
//
// A block that is full can be published as it lies. From then on it is an entry like a module, a prefix block
// (ModuleKey::is_prefix), and all that is said of modules here is true of it.
//
// A module's KV is created by its encoder, published once whole, and then read in place by any number of sequences. A
// pin keeps it where it is; only unpinned modules are evicted, lowest priority first, then as EvictionPolicy says.
// Memory is reserved against the budget before it is allocated.
//
// Thread-safe. The engine thread creates, pins and evicts; HTTP threads read statistics and change retention.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/kv/eviction_policy.h"
#include "core/kv/kv_memory.h"
#include "core/kv/module_key.h"

namespace promptcached::kv {

struct Retention {
  bool pin = false;  // never evicted once published, whatever its ttl
  std::optional<std::chrono::duration<double>> ttl =
      std::nullopt;  // gone this long after its last use; a pinned module is in use
  int priority = 0;
};

// The KV of one module: `tokens` text tokens, then `extra_tokens` slot placeholders, in one array
// [layers, 2, kv_heads, tokens + extra_tokens, head_dim].
struct ModuleKv {
  std::byte* data = nullptr;
  std::int32_t tokens = 0;
  std::int32_t extra_tokens = 0;
  std::int32_t total_tokens() const { return tokens + extra_tokens; }
};

class ModulePool;
struct ModuleEntry;

// A claim on a module's KV: while it lives, the KV is neither evicted nor moved. Move-only; released on destruction,
// from any thread. A pin may outlive the module's removal from the pool (the memory is freed with the last pin), never
// the pool itself.
class ModulePin {
 public:
  ModulePin() = default;
  ModulePin(ModulePin&& other) noexcept;
  ModulePin& operator=(ModulePin&& other) noexcept;
  ModulePin(const ModulePin&) = delete;
  ModulePin& operator=(const ModulePin&) = delete;
  ~ModulePin();

  explicit operator bool() const { return entry_ != nullptr; }
  const ModuleKv& kv() const;    // pin must not be empty
  const ModuleKey& key() const;  // the same; all zero for private KV
  ModulePin duplicate() const;   // another pin on the same module
  void release();

 private:
  friend class ModulePool;
  ModulePin(ModulePool* pool, ModuleEntry* entry, bool is_use = true) : pool_(pool), entry_(entry), is_use_(is_use) {}
  ModulePool* pool_ = nullptr;
  ModuleEntry* entry_ = nullptr;
  bool is_use_ = true;
};

// A fixed-size block of a sequence's own KV: [layers, 2, kv_heads, block_tokens, head_dim]. Move-only; returns its
// memory to the budget on destruction.
class SequenceBlock {
 public:
  SequenceBlock() = default;
  SequenceBlock(SequenceBlock&& other) noexcept;
  SequenceBlock& operator=(SequenceBlock&& other) noexcept;
  SequenceBlock(const SequenceBlock&) = delete;
  SequenceBlock& operator=(const SequenceBlock&) = delete;
  ~SequenceBlock();
  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }

 private:
  friend class ModulePool;
  SequenceBlock(ModulePool* pool, std::byte* data) : pool_(pool), data_(data) {}
  ModulePool* pool_ = nullptr;
  std::byte* data_ = nullptr;
};

struct PoolStats {
  std::size_t capacity_bytes = 0;
  std::size_t module_bytes = 0;  // published modules and those being encoded, private ones included
  std::size_t prefix_bytes = 0;  // prefix blocks
  std::size_t pinned_bytes = 0;  // of those two: pinned by sequences or by retention
  std::size_t block_bytes = 0;   // sequences' own blocks in use
  std::size_t free_bytes = 0;
  std::int64_t entries = 0;  // published modules
  std::int64_t prefix_entries = 0;
  std::int64_t free_blocks = 0;  // blocks that fit in free_bytes now
};

struct ModuleInfo {
  ModuleKey key;
  std::size_t bytes = 0;
  std::int32_t tokens = 0;
  std::int64_t pins = 0;
  std::int64_t hits = 0;
  double idle_seconds = 0;  // since its last use
  ModuleWorth worth;
  Retention retention;
};

enum class EvictionReason { kCapacity, kTtl, kRequested, kReplaced };

class ModulePool {
 public:
  struct Options {
    std::size_t capacity_bytes = 0;
    std::int32_t block_tokens = 64;
    EvictionKind eviction = EvictionKind::kCost;
    bool poison = false;  // overwrite freed memory, so that a use after release shows as NaN
    std::function<void(EvictionReason, std::size_t bytes)> on_evict;  // called outside the lock
    // Lower tiers. Whether one of them would take a module that has to make room (called under the lock), and who
    // takes it, with the pin that keeps it until leave() (called outside).
    std::function<bool(const ModuleKey&)> is_kept_below;
    std::function<void(ModulePin)> on_leave;
    std::function<std::chrono::steady_clock::time_point()> now;  // null: the steady clock
  };

  ModulePool(const Options& options, const KvGeometry& geometry, std::unique_ptr<KvAllocator> allocator);
  ~ModulePool();  // asserts that no pin and no block is left
  ModulePool(const ModulePool&) = delete;
  ModulePool& operator=(const ModulePool&) = delete;

  // A pin on a published module; counts as a use. Nullopt when it is not there (or still being encoded).
  std::optional<ModulePin> pin(const ModuleKey& key);
  bool contains(const ModuleKey& key) const;  // changes nothing
  bool expects(const ModuleKey& key) const;   // created, and not published yet
  // A pin that is no use of the module: for those who copy it elsewhere.
  std::optional<ModulePin> hold(const ModuleKey& key);

  // Reserves and allocates KV for a module about to be encoded, evicting unpinned modules for it. It cannot be found
  // until published; dropping the pin before that frees it. Errors: kTooLargeForCache when it could never fit,
  // kQueueFull when it does not fit now because the rest is pinned or still on its way to a lower tier, kConflict when
  // the key is already there.
  Result<ModulePin> create(const ModuleKey& key, std::int32_t tokens, std::int32_t extra_tokens,
                           const Retention& retention);
  // The same for KV that only its holder will ever read (cache="false", `cache: bypass`): freed with the last pin.
  Result<ModulePin> create_private(std::int32_t tokens, std::int32_t extra_tokens);
  // Makes a created module findable. Its KV is immutable from here on.
  void publish(const ModulePin& pin, const ModuleWorth& worth = {});

  // Publishes a sequence's block, whose first `tokens` tokens are filled, where it lies. When there is an entry under
  // the key, the pin is on that one and the block's memory is given back; while that is being filled, nullopt, and the
  // sequence keeps its block.
  std::optional<ModulePin> publish_block(SequenceBlock& block, const ModuleKey& key, std::int32_t tokens,
                                         const ModuleWorth& worth);
  // Gives back pins on blocks of which each is of no use without those before it: what is behind goes first.
  void release_chain(std::vector<ModulePin> chain);

  // Ends the departure that on_leave began: the module goes, unless somebody has pinned it meanwhile. Returns whether
  // it went.
  bool leave(ModulePin pin);

  // Blocks for a sequence, evicting unpinned modules for them: all of them or none, and nothing is evicted in vain.
  // Error kQueueFull when all the rest is pinned or in use.
  Result<std::vector<SequenceBlock>> allocate_blocks(std::int32_t count);
  Result<SequenceBlock> allocate_block();

  void set_retention(const ModuleKey& key, const Retention& retention);
  // Now if unpinned, else with its last pin; findable no longer. on_evict hears `reason` at once.
  void remove(const ModuleKey& key, EvictionReason reason = EvictionReason::kRequested);
  std::size_t drop_unpinned();  // bytes freed; modules kept by retention stay
  void drop_expired();          // modules whose ttl has passed and which nobody pins

  bool expects_memory() const;  // modules are on their way to a lower tier, and will free theirs
  PoolStats stats() const;
  std::vector<ModuleInfo> list() const;  // of modules; most recently used first
  std::optional<ModuleInfo> info(const ModuleKey& key) const;
  // True when free + modules + prefix blocks + blocks = capacity, and every counter agrees with what the entries say.
  bool check_integrity() const;

  const KvGeometry& geometry() const;
  std::int32_t block_tokens() const;
  KvAllocator& memory() const;  // its copies and on_host() may be used on any thread

 private:
  friend class ModulePin;
  friend class SequenceBlock;
  struct Impl;
  Result<ModulePin> create_entry(const ModuleKey* key, std::int32_t tokens, std::int32_t extra_tokens,
                                 const Retention& retention);
  std::unique_ptr<Impl> impl_;
};

}  // namespace promptcached::kv
