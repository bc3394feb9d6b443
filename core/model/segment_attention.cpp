#include "core/model/segment_attention.h"

#include <utility>

#include "core/model/aten.h"

namespace promptcached::model {
namespace {

RowList spell_out(const std::vector<RowRange>& ranges, at::Device device) {
  RowList list;
  for (const RowRange& range : ranges) {
    for (std::int32_t row = range.begin; row < range.end; ++row) {
      list.rows.push_back(row);
    }
  }
  const auto count = static_cast<std::int32_t>(list.rows.size());
  if (count > 0 && list.rows.back() - list.rows.front() + 1 != count) {
    list.index = at::tensor(list.rows, at::kLong).to(device);
  }
  return list;
}

}  // namespace

SegmentAttention::SegmentAttention(const HeadShape& shape, const Compute& compute,
                                   std::unique_ptr<AttentionBackend> backend)
    : shape_(shape), compute_(compute), backend_(std::move(backend)) {}

void SegmentAttention::begin(const ForwardBatch& batch) {
  batch_ = &batch;
  reads_.clear();
  single_rows_.clear();
  causal_groups_.clear();
  for (const KvRead& read : batch.reads) {
    RowList rows = spell_out(read.rows, compute_.device);
    if (read.count > 0 && !rows.rows.empty()) {
      reads_.push_back({read, std::move(rows)});
    }
  }
  for (const RowRange& group : batch.causal_groups) {
    if (group.size() > 1) {
      causal_groups_.push_back(group);
    } else if (!single_rows_.empty() && single_rows_.back().end == group.begin) {
      single_rows_.back().end = group.end;
    } else {
      single_rows_.push_back(group);
    }
  }
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

at::Tensor SegmentAttention::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv) {
  const at::Tensor rounded = kv.to(compute_.attention);
  const NewStates states{q, rounded.select(0, 0), rounded.select(0, 1)};
  const at::TensorOptions fp32 = q.options().dtype(at::kFloat);
  AttentionSum sum{at::empty(q.sizes(), fp32), at::empty(q.sizes().slice(0, 3), fp32)};
  for (const RowRange& rows : single_rows_) {
    backend_->begin_self(states, rows, &sum);
  }
  for (const RowRange& rows : causal_groups_) {
    backend_->begin_causal(states, rows, &sum);
  }
  layer_reads_.clear();
  for (const auto& [read, rows] : reads_) {
    const at::Tensor old = view(read.kv, layer, read.offset, read.count);
    layer_reads_.push_back({old.select(0, 0), old.select(0, 1), &rows});
  }
  backend_->add(q, layer_reads_, &sum);
  return sum.out.transpose(0, 1).reshape({q.size(1), q.size(0) * q.size(2) * q.size(3)}).to(compute_.attention);
}

}  // namespace promptcached::model
