#include <algorithm>
#include <utility>
#include <vector>

#include "core/model/aten.h"
#include "core/model/attention_backend.h"
#include "core/model/attention_sums.h"

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

class GenericAttention final : public AttentionBackend {
 public:
  void begin(const AttentionSetup& setup, const ForwardBatch& batch) override;
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv) override;

 private:
  struct PlannedRead {
    const KvRead* read = nullptr;
    RowList rows;
    at::Tensor positions;  // of its keys, where a rule needs them
  };

  // What a batch's rows see through a window of so many positions.
  struct View {
    std::int64_t window = 0;
    std::vector<PlannedRead> whole{};   // all keys
    std::vector<PlannedRead> partly{};  // some keys, at least one a row
    std::vector<RowRange> whole_groups{};
    std::vector<RowRange> partly_groups{};
  };

  void plan(const ForwardBatch& batch, View* view) const;
  at::Tensor key_positions(const KvRead& read) const;
  std::vector<StoredKeys> in_layer(const std::vector<PlannedRead>& reads, std::int64_t layer) const;

  const AttentionSetup* setup_ = nullptr;
  bool has_slopes_ = false;
  at::Tensor positions_;               // of the batch's rows, where a rule needs them
  std::vector<View> views_;            // one for each window that layers have
  std::vector<RowRange> single_rows_;  // runs of rows that are alone in their causal groups
};

void GenericAttention::begin(const AttentionSetup& setup, const ForwardBatch& batch) {
  setup_ = &setup;
  has_slopes_ = false;
  views_.clear();
  for (const ScoreRule& rule : setup.rules) {
    has_slopes_ = has_slopes_ || rule.slopes.defined();
    if (std::ranges::find(views_, rule.window, &View::window) == views_.end()) {
      views_.push_back({.window = rule.window});
    }
  }
  if (setup.needs_positions()) {
    positions_ = at::tensor(batch.positions, at::kLong).to(setup.compute.device);
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
void GenericAttention::plan(const ForwardBatch& batch, View* view) const {
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
        reads->push_back({&read, row_list(std::move(*rows), setup_->compute.device),
                          needs_positions ? key_positions(read) : at::Tensor()});
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

at::Tensor GenericAttention::key_positions(const KvRead& read) const {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(read.count));
  list_positions(read, positions.data());
  return at::tensor(positions, at::kLong).to(setup_->compute.device);
}

std::vector<StoredKeys> GenericAttention::in_layer(const std::vector<PlannedRead>& reads, std::int64_t layer) const {
  std::vector<StoredKeys> stored;
  stored.reserve(reads.size());
  for (const auto& [read, rows, positions] : reads) {
    const at::Tensor old = layer_view(*setup_, read->kv, layer, read->offset, read->count);
    stored.push_back({old.select(0, 0), old.select(0, 1), &rows, positions});
  }
  return stored;
}

at::Tensor GenericAttention::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv) {
  const ScoreRule& rule = setup_->rules[static_cast<std::size_t>(layer)];
  const ScoreRule open = without_window(rule);
  const View& seen = *std::ranges::find(views_, rule.window, &View::window);
  const at::Tensor rounded = kv.to(setup_->compute.attention);
  const NewStates states{q, rounded.select(0, 0), rounded.select(0, 1), positions_};
  const at::TensorOptions fp32 = q.options().dtype(at::kFloat);
  AttentionSum sum{at::empty(q.sizes(), fp32), at::empty(q.sizes().slice(0, 3), fp32)};
  for (const RowRange& rows : single_rows_) {
    begin_self(states, rows, open, &sum);
  }
  for (const RowRange& rows : seen.whole_groups) {
    begin_causal(states, rows, open, &sum);
  }
  for (const RowRange& rows : seen.partly_groups) {
    begin_causal(states, rows, rule, &sum);
  }
  for (const StoredKeys& read : in_layer(seen.whole, layer)) {
    add_read(states, read, open, &sum);
  }
  for (const StoredKeys& read : in_layer(seen.partly, layer)) {
    add_read(states, read, rule, &sum);
  }
  return sum.out.transpose(0, 1).reshape({q.size(1), q.size(0) * q.size(2) * q.size(3)}).to(setup_->compute.attention);
}

}  // namespace

std::unique_ptr<AttentionBackend> make_generic_attention() { return std::make_unique<GenericAttention>(); }

}  // namespace promptcached::model
