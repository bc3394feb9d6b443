#include "core/engine/batch_builder.h"

#include <algorithm>
#include <cassert>

namespace promptcached::engine {

BatchBuilder::BatchBuilder(model::ForwardBatch& batch) : batch_(batch) { batch_.clear(); }

void BatchBuilder::begin_group() {
  group_begin_ = batch_.rows();
  batch_.causal_groups.push_back({group_begin_, group_begin_});
}

void BatchBuilder::add_row(TokenId token, std::int32_t position, const model::KvArray& kv, std::int32_t offset) {
  assert(group_rows() == 0 || batch_.positions.back() < position);
  const std::int32_t row = batch_.rows();
  batch_.tokens.push_back(token);
  batch_.positions.push_back(position);
  batch_.causal_groups.back().end = row + 1;
  // Consecutive rows that go to consecutive tokens of one array are one write.
  if (!batch_.writes.empty()) {
    model::KvWrite& last = batch_.writes.back();
    if (last.kv.data == kv.data && last.rows.end == row && last.offset + last.rows.size() == offset &&
        last.rows.begin >= group_begin_) {
      last.rows.end = row + 1;
      return;
    }
  }
  batch_.writes.push_back({kv, offset, {row, row + 1}});
}

void BatchBuilder::show(std::span<const PlacedRange> ranges) {
  pieces_.clear();
  for (const PlacedRange& range : ranges) {
    split(range, pieces_);
  }
  // Ranges that are neighbours in memory and seen by the same rows are read as one, as long as their positions ascend:
  // a module whose slots lie before all rows is a single read, placeholders that are kept behind its text are another.
  for (std::size_t begin = 0; begin < pieces_.size();) {
    std::size_t end = begin + 1;
    while (end < pieces_.size() && pieces_[end].kv.data == pieces_[begin].kv.data &&
           pieces_[end].first_row == pieces_[begin].first_row && pieces_[end].start > pieces_[end - 1].start &&
           pieces_[end].offset == pieces_[end - 1].offset + pieces_[end - 1].count) {
      ++end;
    }
    add_read(std::span(pieces_).subspan(begin, end - begin));
    begin = end;
  }
}

// Cuts `range` where rows' positions fall inside it, so that each piece is seen wholly or not at all by every row. Rows
// see smaller positions only, so a piece is seen by a suffix of the group.
void BatchBuilder::split(const PlacedRange& range, std::vector<Piece>& pieces) const {
  const auto rows_begin = batch_.positions.begin() + group_begin_;
  std::int32_t begin = range.start;
  while (begin < range.end()) {
    const auto row = std::upper_bound(rows_begin, batch_.positions.end(), begin);
    if (row == batch_.positions.end()) {
      return;  // no row sees what is left
    }
    const std::int32_t end = std::min(range.end(), *row);
    const std::int32_t first_row = static_cast<std::int32_t>(row - batch_.positions.begin());
    pieces.push_back({range.kv, range.offset + (begin - range.start), end - begin, begin, first_row});
    begin = end;
  }
}

// One read of pieces that are neighbours in memory.
void BatchBuilder::add_read(std::span<const Piece> pieces) {
  const Piece& first = pieces.front();
  const std::int32_t count = pieces.back().offset + pieces.back().count - first.offset;
  const model::RowRange rows{first.first_row, batch_.rows()};
  const auto [found, is_new] = reads_.try_emplace({first.kv.data, first.offset, count}, batch_.reads.size());
  if (is_new) {
    model::KvRead read{first.kv, first.offset, count, {rows}, {}};
    std::int32_t next_position = -1;
    for (const Piece& piece : pieces) {
      if (piece.start != next_position) {
        read.positions.push_back({piece.offset - first.offset, piece.start});
      }
      next_position = piece.start + piece.count;
    }
    batch_.reads.push_back(std::move(read));
    return;
  }
  std::vector<model::RowRange>& known = batch_.reads[found->second].rows;
  if (known.back().end == rows.begin) {
    known.back().end = rows.end;  // decode rows of neighbouring sequences: one stretch
  } else {
    known.push_back(rows);
  }
}

std::int32_t BatchBuilder::want_logits() {
  assert(group_rows() > 0);
  batch_.logit_rows.push_back(batch_.rows() - 1);
  return static_cast<std::int32_t>(batch_.logit_rows.size()) - 1;
}

}  // namespace promptcached::engine
