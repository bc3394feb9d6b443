#include "core/model/segment_attention.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/model/aten.h"

namespace promptcached::model {
namespace {

RowList row_list(std::vector<std::int32_t> rows, at::Device device) {
  RowList list{std::move(rows), {}};
  const auto count = static_cast<std::int32_t>(list.rows.size());
  if (count > 0 && list.rows.back() - list.rows.front() + 1 != count) {
    list.index = at::tensor(list.rows, at::kLong).to(device);
  }
  return list;
}

std::vector<std::int32_t> spell_out(const std::vector<RowRange>& ranges) {
  std::vector<std::int32_t> rows;
  for (const RowRange& range : ranges) {
    for (std::int32_t row = range.begin; row < range.end; ++row) {
      rows.push_back(row);
    }
  }
  return rows;
}

std::int32_t last_position(const KvRead& read) {
  const PositionRun& run = read.positions.back();
  return run.position + (read.count - run.offset) - 1;
}

ScoreRule without_window(ScoreRule rule) {
  rule.window = 0;
  return rule;
}

}  // namespace

SegmentAttention::SegmentAttention(const HeadShape& shape, const Compute& compute,
                                   std::unique_ptr<AttentionBackend> backend, std::vector<ScoreRule> rules)
    : shape_(shape), compute_(compute), backend_(std::move(backend)), rules_(std::move(rules)) {
  for (const ScoreRule& rule : rules_) {
    needs_positions_ = needs_positions_ || rule.needs_positions();
    has_slopes_ = has_slopes_ || rule.slopes.defined();
    if (std::ranges::find(views_, rule.window, &View::window) == views_.end()) {
      views_.push_back({.window = rule.window});
    }
  }
}

void SegmentAttention::begin(const ForwardBatch& batch) {
  batch_ = &batch;
  if (needs_positions_) {
    positions_ = at::tensor(batch.positions, at::kLong).to(compute_.device);
  }
  single_rows_.clear();
  for (const RowRange& group : batch.causal_groups) {
    if (group.size() > 1) {
      continue;
    }
    if (!single_rows_.empty() && single_rows_.back().end == group.begin) {
      single_rows_.back().end = group.end;
    } else {
      single_rows_.push_back(group);
    }
  }
  for (View& view : views_) {
    plan(batch, &view);
  }
}

// Sorts reads and causal groups by whether the window hides some of them from a row. Reads before a row's window are
// not looked at for it.
void SegmentAttention::plan(const ForwardBatch& batch, View* view) const {
  view->whole.clear();
  view->partly.clear();
  view->whole_groups.clear();
  view->partly_groups.clear();
  const auto reaches = [&](std::int32_t row, std::int32_t position) {
    return view->window == 0 || batch.positions[static_cast<std::size_t>(row)] - position < view->window;
  };
  for (const KvRead& read : batch.reads) {
    std::vector<std::int32_t> whole;
    std::vector<std::int32_t> partly;
    if (read.count > 0) {
      for (const std::int32_t row : spell_out(read.rows)) {
        if (reaches(row, read.positions.front().position)) {
          whole.push_back(row);
        } else if (reaches(row, last_position(read))) {
          partly.push_back(row);
        }
      }
    }
    for (auto [rows, reads] : {std::pair(&whole, &view->whole), std::pair(&partly, &view->partly)}) {
      if (!rows->empty()) {
        // A window that hides nothing asks for no distances.
        const bool needs_positions = has_slopes_ || reads == &view->partly;
        reads->push_back(
            {&read, row_list(std::move(*rows), compute_.device), needs_positions ? key_positions(read) : at::Tensor()});
      }
    }
  }
  for (const RowRange& group : batch.causal_groups) {
    if (group.size() > 1) {
      const std::int32_t first = batch.positions[static_cast<std::size_t>(group.begin)];
      (reaches(group.end - 1, first) ? view->whole_groups : view->partly_groups).push_back(group);
    }
  }
}

at::Tensor SegmentAttention::key_positions(const KvRead& read) const {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(read.count));
  for (std::size_t i = 0; i < read.positions.size(); ++i) {
    const auto [offset, position] = read.positions[i];
    const std::int32_t end = i + 1 < read.positions.size() ? read.positions[i + 1].offset : read.count;
    std::iota(positions.begin() + offset, positions.begin() + end, std::int64_t{position});
  }
  return at::tensor(positions, at::kLong).to(compute_.device);
}

at::Tensor SegmentAttention::view(const KvArray& array, std::int64_t layer, std::int64_t offset,
                                  std::int64_t count) const {
  const std::int64_t head = array.tokens * shape_.head_dim;
  const std::int64_t half = shape_.kv_heads * head;
  const std::int64_t first = layer * 2 * half + offset * shape_.head_dim;
  return tensor_over(array.data + first * static_cast<std::int64_t>(c10::elementSize(compute_.kv)),
                     {2, shape_.kv_heads, count, shape_.head_dim}, {half, head, shape_.head_dim, 1}, compute_.kv,
                     compute_.device);
}

void SegmentAttention::write(std::int64_t layer, const at::Tensor& kv) {
  for (const KvWrite& write : batch_->writes) {
    if (write.rows.size() > 0) {
      view(write.kv, layer, write.offset, write.rows.size()).copy_(kv.narrow(2, write.rows.begin, write.rows.size()));
    }
  }
}

std::vector<StoredKeys> SegmentAttention::in_layer(const std::vector<PlannedRead>& reads, std::int64_t layer) const {
  std::vector<StoredKeys> stored;
  stored.reserve(reads.size());
  for (const auto& [read, rows, positions] : reads) {
    const at::Tensor old = view(read->kv, layer, read->offset, read->count);
    stored.push_back({old.select(0, 0), old.select(0, 1), &rows, positions});
  }
  return stored;
}

at::Tensor SegmentAttention::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv) {
  const ScoreRule& rule = rules_[static_cast<std::size_t>(layer)];
  const ScoreRule open = without_window(rule);
  const View& seen = *std::ranges::find(views_, rule.window, &View::window);
  const at::Tensor rounded = kv.to(compute_.attention);
  const NewStates states{q, rounded.select(0, 0), rounded.select(0, 1), positions_};
  const at::TensorOptions fp32 = q.options().dtype(at::kFloat);
  AttentionSum sum{at::empty(q.sizes(), fp32), at::empty(q.sizes().slice(0, 3), fp32)};
  for (const RowRange& rows : single_rows_) {
    backend_->begin_self(states, rows, open, &sum);
  }
  for (const RowRange& rows : seen.whole_groups) {
    backend_->begin_causal(states, rows, open, &sum);
  }
  for (const RowRange& rows : seen.partly_groups) {
    backend_->begin_causal(states, rows, rule, &sum);
  }
  backend_->add(states, in_layer(seen.whole, layer), open, &sum);
  if (!seen.partly.empty()) {
    backend_->add(states, in_layer(seen.partly, layer), rule, &sum);
  }
  return sum.out.transpose(0, 1).reshape({q.size(1), q.size(0) * q.size(2) * q.size(3)}).to(compute_.attention);
}

}  // namespace promptcached::model
