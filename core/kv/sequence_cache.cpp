#include "core/kv/sequence_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace promptcached::kv {

std::int32_t SequenceCache::missing_blocks(std::int32_t tokens) const {
  const std::int64_t block_tokens = pool_->block_tokens();
  const auto needed = (std::int64_t{tokens} + block_tokens - 1) / block_tokens;
  return static_cast<std::int32_t>(std::max<std::int64_t>(needed - static_cast<std::int64_t>(blocks_.size()), 0));
}

Status SequenceCache::reserve(std::int32_t tokens) {
  const std::int32_t missing = missing_blocks(tokens);
  if (missing == 0) {
    return {};
  }
  Result<std::vector<SequenceBlock>> gained = pool_->allocate_blocks(missing);
  if (!gained) {
    return gained.error();
  }
  for (SequenceBlock& block : *gained) {
    blocks_.emplace_back(std::move(block));
  }
  return {};
}

void SequenceCache::append(std::int32_t tokens) {
  assert(tokens == 0 || !blocks_[static_cast<std::size_t>(size_ / pool_->block_tokens())].is_shared());
  size_ += tokens;
}

void SequenceCache::adopt(ModulePin block) {
  assert(size_ == static_cast<std::int32_t>(blocks_.size()) * pool_->block_tokens());
  assert(block.kv().tokens == pool_->block_tokens());
  blocks_.emplace_back(std::move(block));
  size_ += pool_->block_tokens();
}

bool SequenceCache::share(std::int32_t index, const ModuleKey& key, std::int32_t tokens, const ModuleWorth& worth) {
  Block& block = blocks_[static_cast<std::size_t>(index)];
  assert(!block.is_shared() && index * pool_->block_tokens() + tokens <= size_);
  std::optional<ModulePin> shared = pool_->publish_block(block.own_, key, tokens, worth);
  if (!shared.has_value()) {
    return false;
  }
  block.shared_ = std::move(*shared);
  return true;
}

void SequenceCache::clear() {
  std::vector<ModulePin> shared;
  for (Block& block : blocks_) {
    if (block.is_shared()) {
      shared.push_back(std::move(block.shared_));
    }
  }
  pool_->release_chain(std::move(shared));
  blocks_.clear();
  size_ = 0;
}

}  // namespace promptcached::kv
