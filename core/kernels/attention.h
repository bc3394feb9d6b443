// Softmax attention of some queries over keys and values that lie in many pieces, each read where it is and in the
// format it has. For each query the result is the sum of the values weighted by the softmax of its scores, and the log
// of the sum of exponentials that normalised it: results over different keys merge exactly into the one over all of
// them (merge_attention). One thread; no torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace promptcached::kernels {

enum class KvFormat { kFp32, kFp16, kBf16 };

// What becomes of a score, the product of query and key over the root of the head's size. Distances are those of
// positions, query's minus key's.
struct AttentionRule {
  float softcap = 0;              // s becomes c * tanh(s / c); 0: none
  float window = 0;               // keys at this distance or farther are not seen; 0: all are
  const float* slopes = nullptr;  // [group] what a key loses for each position of distance; nullptr: nothing

  bool needs_positions() const { return window > 0 || slopes != nullptr; }
  bool is_plain() const { return softcap == 0 && !needs_positions(); }
};

// Consecutive keys and values of one KV head.
struct KeyPiece {
  const void* k = nullptr;  // [tokens, head_dim]
  const void* v = nullptr;  // the same
  std::int64_t tokens = 0;
  const std::int32_t* limits = nullptr;  // [rows of the task] how many of these keys each row sees; nullptr: all
  const float* positions = nullptr;      // [tokens], where the rule needs them
};

// Some rows of one KV head over some keys. A row is `group` queries.
struct AttentionTask {
  std::span<const KeyPiece> pieces;
  KvFormat format = KvFormat::kFp32;
  std::int64_t head_dim = 0;
  std::int64_t group = 0;
  std::span<const std::int32_t> rows;    // which of q's
  const float* q = nullptr;              // [all rows, group, head_dim]
  const float* row_positions = nullptr;  // [all rows], where the rule needs them
  AttentionRule rule{};
  float* out = nullptr;         // [rows, group, head_dim], rows out_stride numbers apart
  std::int64_t out_stride = 0;  // numbers
  float* lse = nullptr;         // [rows, group], or nullptr; a query that sees no key gets a finite number below all
                                // others
};

// A query's result depends on nothing but the task's keys and, in its last bits, on whether the task has more than
// a few queries.
void compute_attention(const AttentionTask& task);

// One query's result over some of its keys.
struct AttentionPart {
  const float* out = nullptr;  // [head_dim]
  float lse = 0;
};

// The result over all keys of all parts, of which there is at least one.
void merge_attention(std::span<const AttentionPart> parts, std::int64_t head_dim,
                     float* out);  // [head_dim]

}  // namespace promptcached::kernels
