#include "core/model/segment_attention.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/model/aten.h"

namespace promptcached::model {

bool AttentionSetup::needs_positions() const {
  return std::ranges::any_of(rules, [](const ScoreRule& rule) { return rule.needs_positions(); });
}

at::Tensor layer_view(const AttentionSetup& setup, const KvArray& array, std::int64_t layer, std::int64_t offset,
                      std::int64_t count) {
  const HeadShape& shape = setup.shape;
  const std::int64_t head = array.tokens * shape.head_dim;
  const std::int64_t half = shape.kv_heads * head;
  const std::int64_t first = array.row(shape.kv_heads, layer, 0, offset) * shape.head_dim;
  const at::ScalarType format = setup.compute.kv;
  return tensor_over(array.data + first * static_cast<std::int64_t>(c10::elementSize(format)),
                     {2, shape.kv_heads, count, shape.head_dim}, {half, head, shape.head_dim, 1}, format,
                     setup.compute.device);
}

namespace {

// As layer_view().copy_(), on the CPU: decoding stores a few numbers in each of many layers, and a tensor costs more
// than they do.
void copy_rows(const AttentionSetup& setup, const KvWrite& write, std::int64_t layer, const at::Tensor& kv) {
  const std::int64_t token = setup.shape.head_dim * static_cast<std::int64_t>(kv.element_size());
  const auto* source = static_cast<const std::byte*>(kv.const_data_ptr()) + write.rows.begin * token;
  for (std::int64_t head = 0; head < 2 * setup.shape.kv_heads; ++head) {  // those of K, then those of V
    std::byte* target = write.kv.data + write.kv.row(setup.shape.kv_heads, layer, head, write.offset) * token;
    std::memcpy(target, source + head * kv.size(2) * token, static_cast<std::size_t>(write.rows.size() * token));
  }
}

}  // namespace

SegmentAttention::SegmentAttention(const HeadShape& shape, const Compute& compute,
                                   std::unique_ptr<AttentionBackend> backend, std::vector<ScoreRule> rules)
    : setup_{shape, compute, std::move(rules)}, backend_(std::move(backend)) {}

void SegmentAttention::begin(const ForwardBatch& batch) {
  batch_ = &batch;
  backend_->begin(setup_, batch);
}

void SegmentAttention::write(std::int64_t layer, const at::Tensor& kv) {
  const Compute& compute = setup_.compute;
  for (const KvWrite& write : batch_->writes) {
    if (write.rows.size() == 0) {
      continue;
    }
    if (compute.device.is_cpu()) {
      copy_rows(setup_, write, layer, kv);
    } else {
      layer_view(setup_, write.kv, layer, write.offset, write.rows.size())
          .copy_(kv.narrow(2, write.rows.begin, write.rows.size()));
    }
  }
}

at::Tensor SegmentAttention::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& kv) {
  return backend_->attend(layer, q, kv);
}

}  // namespace promptcached::model
