#include "core/model/attention_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace promptcached::model {
namespace {

// Queries of a KV head from which a group has nothing to gain from others that read the same keys.
constexpr std::int64_t kLongQueries = 24;
// Queries of a KV head in a task: enough to make its keys' way from memory count for little.
constexpr std::int64_t kTaskQueries = 96;
// Keys of a task where they are divided. Both are fixed, so that results do not depend on the number of threads.
constexpr std::int64_t kTaskKeys = 512;
// Keys are computed in blocks of so many: runs end with them.
constexpr std::int64_t kKeyBlock = 64;
// Blocks of queries from which there is work enough without dividing the keys.
constexpr std::int64_t kManyBlocks = 32;

bool is_long(RowRange rows, std::int64_t group) { return rows.size() * group >= kLongQueries; }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

void AttentionPlan::make(const ForwardBatch& batch, std::int64_t kv_heads, std::int64_t group, bool needs_positions) {
  needs_positions_ = needs_positions;
  streams_.clear();
  tasks_.clear();
  pieces_.clear();
  rows_.clear();
  limits_.clear();
  positions_.clear();
  if (needs_positions) {
    list_positions(batch);
  }
  for (const RowRange& rows : batch.causal_groups) {
    if (is_long(rows, group)) {
      add_long_group(batch, rows);
    }
  }
  add_short_groups(batch, group);
  for (const Stream& stream : streams_) {
    add_tasks(stream, kv_heads, group);
  }
  number_parts(batch.rows());
  // Tasks are taken in this order by whichever thread is free: long ones last would leave threads waiting.
  std::vector<std::int32_t> order(tasks_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto cost = [&](std::int32_t i) {
    return tasks_[static_cast<std::size_t>(i)].rows * tasks_[static_cast<std::size_t>(i)].keys;
  };
  std::ranges::stable_sort(order, std::ranges::greater(), cost);
  std::vector<std::int32_t> places(order.size());
  std::vector<PlannedTask> sorted;
  sorted.reserve(order.size());
  for (const std::int32_t i : order) {
    places[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(sorted.size());
    sorted.push_back(tasks_[static_cast<std::size_t>(i)]);
  }
  tasks_.swap(sorted);
  for (PlannedPart& part : parts_) {
    part.task = places[static_cast<std::size_t>(part.task)];
  }
}

std::span<const PlannedPart> AttentionPlan::parts_of(std::int32_t row) const {
  const auto index = static_cast<std::size_t>(row);
  const std::int32_t begin = row == 0 ? 0 : part_ends_[index - 1];
  return {parts_.data() + begin, static_cast<std::size_t>(part_ends_[index] - begin)};
}

void AttentionPlan::list_positions(const ForwardBatch& batch) {
  positions_.assign(batch.positions.begin(), batch.positions.end());
  read_positions_.clear();
  for (const KvRead& read : batch.reads) {
    const auto begin = static_cast<std::int64_t>(positions_.size());
    read_positions_.push_back(begin);
    positions_.resize(positions_.size() + static_cast<std::size_t>(read.count));
    model::list_positions(read, positions_.data() + begin);
  }
}

// All that any of the group's rows see, as one stream: reads that some of them do not see are hidden from those.
void AttentionPlan::add_long_group(const ForwardBatch& batch, RowRange rows) {
  Stream& stream = streams_.emplace_back();
  stream.rows.resize(static_cast<std::size_t>(rows.size()));
  std::iota(stream.rows.begin(), stream.rows.end(), rows.begin);
  for (std::size_t i = 0; i < batch.reads.size(); ++i) {
    const KvRead& read = batch.reads[i];
    std::vector<std::int32_t> limits(stream.rows.size());
    std::int32_t seeing = 0;
    for (const RowRange& range : read.rows) {
      const std::int32_t begin = std::max(range.begin, rows.begin);
      const std::int32_t end = std::min(range.end, rows.end);
      if (begin < end) {
        std::fill(limits.begin() + (begin - rows.begin), limits.begin() + (end - rows.begin), read.count);
        seeing += end - begin;
      }
    }
    if (seeing == 0 || read.count == 0) {
      continue;
    }
    if (seeing == rows.size()) {
      limits.clear();
    }
    stream.pieces.push_back(
        {read.kv, read.offset, read.count, needs_positions_ ? read_positions_[i] : -1, std::move(limits)});
  }
  std::vector<std::int32_t> limits(stream.rows.size());
  std::iota(limits.begin(), limits.end(), 1);
  stream.pieces.push_back({{nullptr, batch.rows()},
                           rows.begin,
                           rows.size(),
                           needs_positions_ ? std::int64_t{rows.begin} : -1,
                           std::move(limits)});
}

// Reads that are seen by the same rows of short groups are one stream, and so is a group's own part when the group is
// just these rows.
void AttentionPlan::add_short_groups(const ForwardBatch& batch, std::int64_t group) {
  std::vector<bool> is_short(static_cast<std::size_t>(batch.rows()));
  bool any = false;
  for (const RowRange& rows : batch.causal_groups) {
    if (!is_long(rows, group)) {
      std::fill(is_short.begin() + rows.begin, is_short.begin() + rows.end, true);
      any = true;
    }
  }
  if (!any) {
    return;
  }
  std::map<std::vector<std::int32_t>, std::size_t> known;
  const auto stream_of = [&](const std::vector<std::int32_t>& rows) -> Stream& {
    const auto [found, is_new] = known.try_emplace(rows, streams_.size());
    if (is_new) {
      streams_.push_back({rows, {}});
    }
    return streams_[found->second];
  };
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < batch.reads.size(); ++i) {
    const KvRead& read = batch.reads[i];
    rows.clear();
    for (const RowRange& range : read.rows) {
      for (std::int32_t row = range.begin; row < range.end; ++row) {
        if (is_short[static_cast<std::size_t>(row)]) {
          rows.push_back(row);
        }
      }
    }
    if (!rows.empty() && read.count > 0) {
      stream_of(rows).pieces.push_back({read.kv, read.offset, read.count, needs_positions_ ? read_positions_[i] : -1});
    }
  }
  for (const RowRange& range : batch.causal_groups) {
    if (is_long(range, group)) {
      continue;
    }
    rows.resize(static_cast<std::size_t>(range.size()));
    std::iota(rows.begin(), rows.end(), range.begin);
    std::vector<std::int32_t> limits;
    if (range.size() > 1) {
      limits.resize(rows.size());
      std::iota(limits.begin(), limits.end(), 1);
    }
    stream_of(rows).pieces.push_back({{nullptr, batch.rows()},
                                      range.begin,
                                      range.size(),
                                      needs_positions_ ? std::int64_t{range.begin} : -1,
                                      std::move(limits)});
  }
}

void AttentionPlan::add_tasks(const Stream& stream, std::int64_t kv_heads, std::int64_t group) {
  const auto rows = static_cast<std::int64_t>(stream.rows.size());
  std::int64_t keys = 0;
  for (const Stream::Piece& piece : stream.pieces) {
    keys += piece.tokens;
  }
  const std::int64_t blocks = ceil_div(rows, std::max<std::int64_t>(1, kTaskQueries / group));
  const std::int64_t block_rows = ceil_div(rows, blocks);
  const std::int64_t runs = blocks * kv_heads >= kManyBlocks ? 1 : ceil_div(keys, kTaskKeys);
  const std::int64_t run_keys = ceil_div(ceil_div(keys, runs), kKeyBlock) * kKeyBlock;
  for (std::int64_t row = 0; row < rows; row += block_rows) {
    for (std::int64_t key = 0; key < keys; key += run_keys) {
      add_task(stream, row, std::min(block_rows, rows - row), key, std::min(run_keys, keys - key));
    }
  }
}

// Keys [first_key, first_key + keys) of the stream, as far as any of the rows sees them.
void AttentionPlan::add_task(const Stream& stream, std::int64_t first_row, std::int64_t rows, std::int64_t first_key,
                             std::int64_t keys) {
  PlannedTask task{.first_row = static_cast<std::int32_t>(rows_.size()),
                   .rows = static_cast<std::int32_t>(rows),
                   .first_piece = static_cast<std::int32_t>(pieces_.size())};
  for (const Stream::Piece& piece : stream.pieces) {
    const std::int64_t skip = std::max<std::int64_t>(0, first_key);
    const std::int64_t end = std::min<std::int64_t>(piece.tokens, first_key + keys);
    if (skip < end) {
      add_piece(piece, first_row, rows, skip, end - skip, &task);
    }
    first_key -= piece.tokens;
  }
  if (task.pieces > 0) {
    rows_.insert(rows_.end(), stream.rows.begin() + first_row, stream.rows.begin() + first_row + rows);
    tasks_.push_back(task);
  }
}

void AttentionPlan::add_piece(const Stream::Piece& piece, std::int64_t first_row, std::int64_t rows, std::int64_t skip,
                              std::int64_t keys, PlannedTask* task) {
  PlannedPiece planned{piece.kv, static_cast<std::int32_t>(piece.offset + skip), static_cast<std::int32_t>(keys), -1,
                       piece.positions < 0 ? -1 : piece.positions + skip};
  if (!piece.limits.empty()) {
    const auto begin = piece.limits.begin() + first_row;
    const auto [least, most] = std::minmax_element(begin, begin + rows);
    planned.tokens = static_cast<std::int32_t>(std::min(keys, *most - skip));
    if (planned.tokens <= 0) {
      return;
    }
    if (*least - skip < planned.tokens) {
      planned.limits = static_cast<std::int64_t>(limits_.size());
      std::transform(begin, begin + rows, std::back_inserter(limits_),
                     [&](std::int32_t limit) { return static_cast<std::int32_t>(limit - skip); });
    }
  }
  pieces_.push_back(planned);
  ++task->pieces;
  task->keys += planned.tokens;
}

// Rows that are in one task alone get their results from it directly; the others' tasks write parts.
void AttentionPlan::number_parts(std::int32_t batch_rows) {
  std::vector<std::int32_t>& ends = part_ends_;
  ends.assign(static_cast<std::size_t>(batch_rows), 0);
  for (const std::int32_t row : rows_) {
    ++ends[static_cast<std::size_t>(row)];
  }
  part_count_ = 0;
  std::vector<bool> writes_parts(tasks_.size());
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    PlannedTask& task = tasks_[i];
    const auto first = rows_.begin() + task.first_row;
    // Rows that are not neighbours have no common distance between their results.
    const bool apart = *(first + task.rows - 1) - *first + 1 != task.rows;
    writes_parts[i] = apart || std::any_of(first, first + task.rows,
                                           [&](std::int32_t row) { return ends[static_cast<std::size_t>(row)] > 1; });
    if (writes_parts[i]) {
      task.first_part = part_count_;
      part_count_ += task.rows;
    }
  }
  // A row all of whose parts are written directly has no parts to merge.
  std::ranges::fill(ends, 0);
  const auto each_part = [&](const auto& visit) {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      for (std::int32_t row = 0; writes_parts[i] && row < tasks_[i].rows; ++row) {
        visit(static_cast<std::size_t>(rows_[static_cast<std::size_t>(tasks_[i].first_row + row)]),
              static_cast<std::int32_t>(i), row);
      }
    }
  };
  each_part([&](std::size_t row, std::int32_t, std::int32_t) { ++ends[row]; });
  std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), 0);
  parts_.resize(static_cast<std::size_t>(part_count_));
  each_part([&](std::size_t row, std::int32_t task, std::int32_t task_row) {
    parts_[static_cast<std::size_t>(ends[row]++)] = {task, task_row};
  });
}

}  // namespace promptcached::model
