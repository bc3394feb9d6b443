// SequenceCache: a sequence's own KV, as a list of fixed-size blocks from the pool's budget.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "core/kv/module_pool.h"

namespace promptcached::kv {

// Tokens are appended in order; token i lies in blocks()[i / block_tokens] at offset i % block_tokens. A block is the
// sequence's own, and written, until it is shared; shared ones are read in place by whoever has the same tokens.
class SequenceCache {
 public:
  class Block {
   public:
    explicit Block(SequenceBlock own) : own_(std::move(own)) {}
    explicit Block(ModulePin shared) : shared_(std::move(shared)) {}
    std::byte* data() const { return shared_ ? shared_.kv().data : own_.data(); }
    bool is_shared() const { return static_cast<bool>(shared_); }

   private:
    friend class SequenceCache;
    SequenceBlock own_;
    ModulePin shared_;
  };

  explicit SequenceCache(ModulePool& pool) : pool_(&pool) {}

  // Makes room for `tokens` tokens in all, allocating the blocks that are missing. On error (kQueueFull) what was
  // there before stays and nothing is gained.
  Status reserve(std::int32_t tokens);
  // How many blocks reserve(tokens) would still have to allocate.
  std::int32_t missing_blocks(std::int32_t tokens) const;

  void append(std::int32_t tokens);  // room must have been reserved
  // Appends a block of tokens that another sequence has computed. The block before must be full, and there be no room
  // reserved behind it.
  void adopt(ModulePin block);
  // Publishes an own block whose first `tokens` tokens are stored, and shares it from now on; no token may be appended
  // to it any more. False when the pool cannot take it now: it stays as it is.
  bool share(std::int32_t block, const ModuleKey& key, std::int32_t tokens, const ModuleWorth& worth);
  void clear();  // gives every block back

  std::int32_t size() const { return size_; }
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  ModulePool* pool_;
  std::vector<Block> blocks_;
  std::int32_t size_ = 0;
};

}  // namespace promptcached::kv
