#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/kernels/attention.h"
#include "core/model/aten.h"
#include "core/model/attention_backend.h"
#include "core/model/attention_plan.h"
#include "core/model/parallel.h"

namespace promptcached::model {
namespace {

// Products below which a second thread costs more than it saves.
constexpr std::int64_t kSerialProducts = std::int64_t{128} << 10U;

class CpuAttention final : public AttentionBackend {
 public:
  void begin(const AttentionSetup& setup, const ForwardBatch& batch) override {
    setup_ = &setup;
    plan_.make(batch, setup.shape.kv_heads, setup.shape.group, setup.needs_positions());
    const std::int64_t parts = plan_.part_count() * setup.shape.kv_heads * setup.shape.group;
    grow(&part_out_, parts * setup.shape.head_dim);
    grow(&part_lse_, parts);
    const std::int64_t counters = batch.rows() * setup.shape.kv_heads;
    if (counter_count_ < counters) {
      counters_ = std::make_unique<std::atomic<std::int32_t>[]>(static_cast<std::size_t>(counters));
      counter_count_ = counters;
    }
    products_ = 0;
    for (const PlannedTask& task : plan_.tasks()) {
      products_ += task.rows * task.keys * setup.shape.group * setup.shape.kv_heads * setup.shape.head_dim;
    }
  }

  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv) override {
    const std::int64_t rows = q.size(1);
    at::Tensor out = at::empty({rows, q.size(0) * q.size(2) * q.size(3)}, q.options());
    const Layer states{layer, rows, q.const_data_ptr<float>(), static_cast<const std::byte*>(kv.const_data_ptr()),
                       out.mutable_data_ptr<float>()};
    const std::int64_t kv_heads = setup_->shape.kv_heads;
    if (plan_.part_count() > 0) {
      for (std::int64_t i = 0; i < rows * kv_heads; ++i) {
        counters_[static_cast<std::size_t>(i)].store(
            static_cast<std::int32_t>(plan_.parts_of(static_cast<std::int32_t>(i / kv_heads)).size()),
            std::memory_order_relaxed);
      }
    }
    const auto tasks = static_cast<std::int64_t>(plan_.tasks().size()) * kv_heads;
    for_each_run(tasks, products_ < kSerialProducts ? std::max<std::int64_t>(1, tasks) : 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     run(states, plan_.tasks()[static_cast<std::size_t>(i / kv_heads)], i % kv_heads);
                   }
                 });
    return out;
  }

 private:
  // One layer's states.
  struct Layer {
    std::int64_t layer;
    std::int64_t rows;
    const float* q;       // [kv_heads, rows, group, head_dim]
    const std::byte* kv;  // [2, kv_heads, rows, head_dim]
    float* out;           // [rows, kv_heads, group, head_dim]
  };

  template <typename T>
  static void grow(std::vector<T>* memory, std::int64_t size) {
    if (memory->size() < static_cast<std::size_t>(size)) {
      memory->resize(static_cast<std::size_t>(size));
    }
  }

  std::int64_t row_size() const { return setup_->shape.group * setup_->shape.head_dim; }

  // The first of a task's parts of one head; a row's are `group` numbers (times head_dim, for values).
  std::int64_t part_of(const PlannedTask& task, std::int64_t head) const {
    return (task.first_part * setup_->shape.kv_heads + head * task.rows) * setup_->shape.group;
  }

  kernels::KeyPiece piece_of(const Layer& states, const PlannedPiece& piece, std::int64_t head) const {
    const HeadShape& shape = setup_->shape;
    const bool is_new = piece.kv.data == nullptr;
    const std::int64_t token_bytes = shape.head_dim * static_cast<std::int64_t>(c10::elementSize(setup_->compute.kv));
    const std::byte* data = is_new ? states.kv : piece.kv.data;
    const std::int64_t layer = is_new ? 0 : states.layer;
    const auto at = [&](std::int64_t row_head) {
      return data + piece.kv.row(shape.kv_heads, layer, row_head, piece.offset) * token_bytes;
    };
    return {at(head), at(shape.kv_heads + head), piece.tokens,
            piece.limits < 0 ? nullptr : plan_.limits() + piece.limits,
            piece.positions < 0 ? nullptr : plan_.positions() + piece.positions};
  }

  kernels::AttentionRule rule_of(std::int64_t layer, std::int64_t head) const {
    const ScoreRule& rule = setup_->rules[static_cast<std::size_t>(layer)];
    return {static_cast<float>(rule.softcap), static_cast<float>(rule.window),
            rule.slopes.defined() ? rule.slopes.const_data_ptr<float>() + head * setup_->shape.group : nullptr};
  }

  // One task of one head; merges the rows whose last part this was.
  void run(const Layer& states, const PlannedTask& task, std::int64_t head) {
    static thread_local std::vector<kernels::KeyPiece> pieces;  // kept, as the memory of all threads here
    pieces.clear();
    for (std::int32_t i = 0; i < task.pieces; ++i) {
      pieces.push_back(piece_of(states, plan_.pieces()[static_cast<std::size_t>(task.first_piece + i)], head));
    }
    const HeadShape& shape = setup_->shape;
    const std::int32_t* rows = plan_.rows() + task.first_row;
    kernels::AttentionTask work{.pieces = pieces,
                                .format = kv_format(setup_->compute.kv),
                                .head_dim = shape.head_dim,
                                .group = shape.group,
                                .rows = {rows, static_cast<std::size_t>(task.rows)},
                                .q = states.q + head * states.rows * row_size(),
                                .row_positions = plan_.positions(),
                                .rule = rule_of(states.layer, head)};
    if (task.first_part < 0) {
      // Its rows are neighbours.
      work.out = states.out + (rows[0] * shape.kv_heads + head) * row_size();
      work.out_stride = shape.kv_heads * row_size();
      kernels::compute_attention(work);
      return;
    }
    const std::int64_t part = part_of(task, head);
    work.out = part_out_.data() + part * shape.head_dim;
    work.out_stride = row_size();
    work.lse = part_lse_.data() + part;
    kernels::compute_attention(work);
    for (std::int32_t i = 0; i < task.rows; ++i) {
      auto& left = counters_[static_cast<std::size_t>(rows[i] * shape.kv_heads + head)];
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        merge(rows[i], head, states);
      }
    }
  }

  void merge(std::int32_t row, std::int64_t head, const Layer& states) const {
    static thread_local std::vector<kernels::AttentionPart> parts;
    const HeadShape& shape = setup_->shape;
    float* out = states.out + (row * shape.kv_heads + head) * row_size();
    for (std::int64_t member = 0; member < shape.group; ++member) {
      parts.clear();
      for (const PlannedPart& planned : plan_.parts_of(row)) {
        const PlannedTask& task = plan_.tasks()[static_cast<std::size_t>(planned.task)];
        const std::int64_t part = part_of(task, head) + planned.row * shape.group + member;
        parts.push_back({part_out_.data() + part * shape.head_dim, part_lse_[static_cast<std::size_t>(part)]});
      }
      kernels::merge_attention(parts, shape.head_dim, out + member * shape.head_dim);
    }
  }

  const AttentionSetup* setup_ = nullptr;
  AttentionPlan plan_;
  std::int64_t products_ = 0;
  std::vector<float> part_out_;  // [parts of all tasks, kv_heads, group, head_dim], each task's heads together
  std::vector<float> part_lse_;  // the same without head_dim
  std::unique_ptr<std::atomic<std::int32_t>[]> counters_;  // [rows, kv_heads] parts that are still to come
  std::int64_t counter_count_ = 0;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_cpu_attention() { return std::make_unique<CpuAttention>(); }

}  // namespace promptcached::model
