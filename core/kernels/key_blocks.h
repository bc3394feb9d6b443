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

 private:
  std::span<const KeyPiece> pieces_;
  std::int64_t block_keys_;
  bool needs_positions_;
  std::size_t piece_ = 0;
  std::int64_t token_ = 0;
};

}  // namespace promptcached::kernels
