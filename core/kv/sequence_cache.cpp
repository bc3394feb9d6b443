#include "core/kv/sequence_cache.h"

#include <algorithm>
#include <iterator>
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
  std::move(gained->begin(), gained->end(), std::back_inserter(blocks_));
  return {};
}

void SequenceCache::clear() {
  blocks_.clear();
  size_ = 0;
}

}  // namespace promptcached::kv
