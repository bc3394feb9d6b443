// Attention of few queries over many keys, as in decoding: each key and value is read once, straight through, in the
// format it is stored in. No torch here.
#pragma once

#include <cstdint>
#include <span>

namespace promptcached::model {

enum class KvFormat { kFp32, kFp16, kBf16 };

// Four queries of one head, the unit in which queries are computed.
inline constexpr std::int64_t kQueryBlock = 4;

// Keys and values of one head, contiguous [tokens, head_dim] each.
struct KeyRun {
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t tokens = 0;  // > 0
  KvFormat format = KvFormat::kFp32;
};

// Whether this processor and head size can be served.
bool can_stream(std::int64_t head_dim);

// All queries over all keys of a run. `queries` is a multiple of kQueryBlock.
void stream_attention(const KeyRun& keys, std::int64_t head_dim, std::int64_t queries,
                      const float* q,  // [queries, head_dim], scaled by 1 / sqrt(head_dim) already
                      float* out,      // [queries, head_dim]
                      float* lse);     // [queries]

}  // namespace promptcached::model
