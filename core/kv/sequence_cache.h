// SequenceCache: a sequence's own KV, as a list of fixed-size blocks from the pool's budget.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/kv/module_pool.h"

namespace promptcached::kv {

// Tokens are appended in order; token i lies in blocks()[i / block_tokens] at offset i % block_tokens.
class SequenceCache {
 public:
  explicit SequenceCache(ModulePool& pool) : pool_(&pool) {}

  // Makes room for `tokens` tokens in all, allocating the blocks that are missing. On error (kQueueFull) what was
  // there before stays and nothing is gained.
  Status reserve(std::int32_t tokens);
  // How many blocks reserve(tokens) would still have to allocate.
  std::int32_t missing_blocks(std::int32_t tokens) const;

  void append(std::int32_t tokens) { size_ += tokens; }  // room must have been reserved
  void clear();                                          // gives every block back

  std::int32_t size() const { return size_; }
  const std::vector<SequenceBlock>& blocks() const { return blocks_; }

 private:
  ModulePool* pool_;
  std::vector<SequenceBlock> blocks_;
  std::int32_t size_ = 0;
};

}  // namespace promptcached::kv
