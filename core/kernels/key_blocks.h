// Keys of many pieces, some at a time. Internal to this room.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/kernels/attention.h"

namespace promptcached::kernels {

inline constexpr std::int64_t kMostBlockKeys = 64;

// Consecutive keys of a block that belong to one piece.
struct KeyChunk {
  const KeyPiece* piece = nullptr;
  std::int64_t first = 0;  // of the piece's keys
  std::int64_t count = 0;
};

// Up to kMostBlockKeys keys, wherever pieces begin and end.
struct KeyBlock {
  std::int64_t keys = 0;
  std::int64_t chunk_count = 0;
  std::array<KeyChunk, kMostBlockKeys> chunks{};
  std::array<float, kMostBlockKeys> positions{};  // where the rule needs them
  float last_position = 0;                        // the largest of them

  std::span<const KeyChunk> parts() const { return {chunks.data(), static_cast<std::size_t>(chunk_count)}; }
};

// Asks for the memory of keys and values before they are needed, a few lines at a time: what comes from far takes
// longer than the processor's own guesses look ahead.
class Prefetcher final {
 public:
  Prefetcher() = default;
  // `bytes` of both, spread over `steps` steps.
  Prefetcher(const void* k, const void* v, std::int64_t bytes, std::int64_t steps)
      : k_(static_cast<const char*>(k)),
        v_(static_cast<const char*>(v)),
        left_(bytes),
        step_((bytes / std::max<std::int64_t>(1, steps) + kLine) / kLine * kLine) {}

  void step(std::int64_t steps = 1) {
    const std::int64_t end = std::min(left_, steps * step_);
    for (std::int64_t i = 0; i < end; i += kLine) {
      __builtin_prefetch(k_ + i, 0, 2);
      __builtin_prefetch(v_ + i, 0, 2);
    }
    k_ += end;
    v_ += end;
    left_ -= end;
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* k_ = nullptr;
  const char* v_ = nullptr;
  std::int64_t left_ = 0;
  std::int64_t step_ = 0;
};

// Walks over a task's keys.
class KeyBlocks final {
 public:
  KeyBlocks(std::span<const KeyPiece> pieces, std::int64_t block_keys, bool needs_positions)
      : pieces_(pieces), block_keys_(block_keys), needs_positions_(needs_positions) {}

  // The next keys; false when there are none left.
  bool next(KeyBlock* block) {
    block->keys = 0;
    block->chunk_count = 0;
    while (block->keys < block_keys_ && piece_ < pieces_.size()) {
      const KeyPiece& piece = pieces_[piece_];
      const std::int64_t count = std::min(block_keys_ - block->keys, piece.tokens - token_);
      if (count > 0) {
        block->chunks[static_cast<std::size_t>(block->chunk_count++)] = {&piece, token_, count};
        if (needs_positions_) {
          std::copy_n(piece.positions + token_, count, block->positions.begin() + block->keys);
        }
        block->keys += count;
        token_ += count;
      }
      if (token_ == piece.tokens) {
        ++piece_;
        token_ = 0;
      }
    }
    if (needs_positions_ && block->keys > 0) {
      block->last_position = *std::max_element(block->positions.begin(), block->positions.begin() + block->keys);
    }
    return block->keys > 0;
  }

  // For the keys that come next, as far as they belong to one piece. `row_bytes`: those of one key.
  Prefetcher prefetcher(std::int64_t row_bytes, std::int64_t steps) const {
    if (piece_ == pieces_.size()) {
      return {};
    }
    const KeyPiece& piece = pieces_[piece_];
    const std::int64_t offset = token_ * row_bytes;
    return {static_cast<const char*>(piece.k) + offset, static_cast<const char*>(piece.v) + offset,
            std::min(block_keys_, piece.tokens - token_) * row_bytes, steps};
  }

 private:
  std::span<const KeyPiece> pieces_;
  std::int64_t block_keys_;
  bool needs_positions_;
  std::size_t piece_ = 0;
  std::int64_t token_ = 0;
};

}  // namespace promptcached::kernels
