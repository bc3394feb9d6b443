// How a batch's attention is divided into tasks for the loops of core/kernels/attention.h: once a batch, the same for
// every layer and KV head, and whatever the number of threads. No torch here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model/forward_batch.h"

namespace promptcached::model {

// Consecutive keys of one array.
struct PlannedPiece {
  KvArray kv;  // without data: the batch's own new keys
  std::int32_t offset = 0;
  std::int32_t tokens = 0;
  std::int64_t limits = -1;     // index into limits() of the task's first row's; -1: its rows see all tokens
  std::int64_t positions = -1;  // index into positions() of the first token's; -1: they are not needed
};

// Some rows over some keys: each part of a row's result that is computed at once.
struct PlannedTask {
  std::int32_t first_row = 0;  // index into rows()
  std::int32_t rows = 0;
  std::int32_t first_piece = 0;  // index into pieces()
  std::int32_t pieces = 0;
  std::int64_t keys = 0;
  std::int64_t first_part = -1;  // index of its first row's part among all parts; -1: its results are whole ones
};

// One part of a row's result.
struct PlannedPart {
  std::int32_t task = 0;
  std::int32_t row = 0;  // of the task
};

class AttentionPlan final {
 public:
  // Long causal groups are computed by themselves, each block of their rows over all keys they see. Rows of short ones
  // that see the same read are computed together over it.
  void make(const ForwardBatch& batch, std::int64_t kv_heads, std::int64_t group, bool needs_positions);

  std::span<const PlannedTask> tasks() const { return tasks_; }  // the longest first
  std::span<const PlannedPiece> pieces() const { return pieces_; }
  const std::int32_t* rows() const { return rows_.data(); }
  const std::int32_t* limits() const { return limits_.data(); }
  const float* positions() const { return positions_.data(); }  // those of the batch's rows first
  std::int64_t part_count() const { return part_count_; }
  // The parts of a row that has more than one, in the order in which they are merged.
  std::span<const PlannedPart> parts_of(std::int32_t row) const;

 private:
  // Keys that some rows see one after another.
  struct Stream {
    struct Piece {
      KvArray kv;
      std::int32_t offset = 0;
      std::int32_t tokens = 0;
      std::int64_t positions = -1;
      std::vector<std::int32_t> limits{};  // [rows]; empty: all rows see all tokens
    };
    std::vector<std::int32_t> rows;
    std::vector<Piece> pieces;
  };

  void list_positions(const ForwardBatch& batch);
  void add_long_group(const ForwardBatch& batch, RowRange rows);
  void add_short_groups(const ForwardBatch& batch, std::int64_t group);
  void add_tasks(const Stream& stream, std::int64_t kv_heads, std::int64_t group);
  void add_task(const Stream& stream, std::int64_t first_row, std::int64_t rows, std::int64_t first_key,
                std::int64_t keys);
  void add_piece(const Stream::Piece& piece, std::int64_t first_row, std::int64_t rows, std::int64_t skip,
                 std::int64_t keys, PlannedTask* task);
  void number_parts(std::int32_t batch_rows);

  bool needs_positions_ = false;
  std::vector<std::int64_t> read_positions_;  // [reads] where each one's begin
  std::vector<Stream> streams_;
  std::vector<PlannedTask> tasks_;
  std::vector<PlannedPiece> pieces_;
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> limits_;
  std::vector<float> positions_;
  std::int64_t part_count_ = 0;
  std::vector<PlannedPart> parts_;
  std::vector<std::int32_t> part_ends_;  // [rows] where each one's parts end in parts_
};

}  // namespace promptcached::model
