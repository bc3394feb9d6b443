// Queries that the attention loops compute side by side. Internal to this room.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <vector>

#include "core/kernels/attention.h"
#include "core/kernels/key_blocks.h"

namespace promptcached::kernels {

inline constexpr float kUnseen = -1e30F;  // below every score, and finite
inline constexpr std::size_t kMostQueryBlocks = 8;

// A thread's memory for one task, kept from task to task.
class Scratch final {
 public:
  static Scratch& of_thread() {
    static thread_local Scratch scratch;
    return scratch;
  }
  // All that was taken is free again.
  void reset() { chunk_ = used_ = 0; }
  // `count` numbers, 64-byte aligned.
  float* take(std::int64_t count) {
    const std::size_t floats = (static_cast<std::size_t>(count) + 15) / 16 * 16;
    while (chunk_ < chunks_.size() && used_ + floats > chunks_[chunk_].floats) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      const std::size_t size = std::max(floats, kChunkFloats);
      chunks_.push_back({std::make_unique<Line[]>(size / 16), size});
    }
    float* memory = chunks_[chunk_].lines[0].floats + used_;
    used_ += floats;
    return memory;
  }

 private:
  static constexpr std::size_t kChunkFloats = 64 * 1024;
  struct alignas(64) Line {
    float floats[16];
  };
  struct Chunk {
    std::unique_ptr<Line[]> lines;
    std::size_t floats = 0;
  };
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;
  std::size_t used_ = 0;
};

// Some of a task's queries, padded to `width` by repeating the last, and their results so far. Scores and all else that
// goes into exponentials is in units of log 2.
struct QueryBlock {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t width = 0;
  float* q = nullptr;            // scaled; laid out as the loop wants it
  float* out = nullptr;          // the same layout
  float* largest = nullptr;      // [width] scores
  float* total = nullptr;        // [width] sums of exponentials relative to the largest
  float* positions = nullptr;    // [width], where the rule needs them
  float* slopes = nullptr;       // [width], where the rule has them
  std::int32_t* rows = nullptr;  // [width] which of the task's rows
};

inline const float* query_of(const AttentionTask& task, std::int64_t query) {
  const std::int64_t row = task.rows[static_cast<std::size_t>(query / task.group)];
  return task.q + (row * task.group + query % task.group) * task.head_dim;
}

inline float* out_of(const AttentionTask& task, std::int64_t query) {
  return task.out + query / task.group * task.out_stride + query % task.group * task.head_dim;
}

// All but the queries themselves.
inline QueryBlock begin_queries(const AttentionTask& task, std::int64_t first, std::int64_t count, std::int64_t width,
                                Scratch* scratch) {
  QueryBlock block{.first = first, .count = count, .width = width};
  block.q = scratch->take(width * task.head_dim);
  block.out = scratch->take(width * task.head_dim);
  block.largest = scratch->take(width);
  block.total = scratch->take(width);
  block.rows = reinterpret_cast<std::int32_t*>(scratch->take(width));
  std::fill_n(block.out, width * task.head_dim, 0.0F);
  std::fill_n(block.largest, width, kUnseen);
  std::fill_n(block.total, width, 0.0F);
  for (std::int64_t i = 0; i < width; ++i) {
    block.rows[i] = static_cast<std::int32_t>((first + std::min(i, count - 1)) / task.group);
  }
  if (task.rule.needs_positions()) {
    block.positions = scratch->take(width);
    for (std::int64_t i = 0; i < width; ++i) {
      block.positions[i] = task.row_positions[task.rows[static_cast<std::size_t>(block.rows[i])]];
    }
  }
  if (task.rule.slopes != nullptr) {
    block.slopes = scratch->take(width);
    for (std::int64_t i = 0; i < width; ++i) {
      block.slopes[i] = task.rule.slopes[(first + std::min(i, count - 1)) % task.group] * std::numbers::log2e_v<float>;
    }
  }
  return block;
}

// Writes the log-sum-exp of the block's query i where it is wanted; returns what its sum of values is to be multiplied
// by.
inline float finish_query(const AttentionTask& task, const QueryBlock& block, std::int64_t i) {
  const float total = block.total[i];
  const bool seen = block.largest[i] > kUnseen;
  if (task.lse != nullptr) {
    task.lse[block.first + i] = seen ? block.largest[i] * std::numbers::ln2_v<float> + std::log(total) : kUnseen;
  }
  return seen ? 1.0F / total : 0.0F;
}

enum class Visibility { kNone, kSome, kAll };

// Which of a block's keys the queries may look at; what a window hides from some is left to the rule.
inline Visibility visibility(const KeyBlock& keys, const QueryBlock& queries, const AttentionRule& rule) {
  if (rule.window > 0) {
    const float nearest = *std::min_element(queries.positions, queries.positions + queries.width) - keys.last_position;
    if (nearest >= rule.window) {
      return Visibility::kNone;
    }
  }
  bool all = true;
  bool none = true;
  for (const KeyChunk& chunk : keys.parts()) {
    if (chunk.piece->limits == nullptr) {
      none = false;
      continue;
    }
    for (std::int64_t i = 0; i < queries.count; ++i) {
      const std::int64_t limit = chunk.piece->limits[queries.rows[i]] - chunk.first;
      all = all && limit >= chunk.count;
      none = none && limit <= 0;
    }
  }
  return none ? Visibility::kNone : all ? Visibility::kAll : Visibility::kSome;
}

}  // namespace promptcached::kernels
