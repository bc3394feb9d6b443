#include "core/model/embedding.h"

#include "core/checkpoint/gguf_quants.h"
#include "core/model/aten.h"

namespace promptcached::model {

at::Tensor gather(const Embedding& embedding, std::span<const std::int32_t> tokens, const at::TensorOptions& options) {
  const at::ArrayRef<std::int32_t> ids(tokens.data(), tokens.size());
  if (embedding.table.defined()) {
    return embedding.table.index_select(0, at::tensor(ids, at::kInt).to(embedding.table.device()));
  }
  const std::int64_t hidden = embedding.stored.shape.back();
  at::Tensor rows = at::empty({static_cast<std::int64_t>(tokens.size()), hidden}, options.dtype(at::kFloat));
  auto* target = rows.mutable_data_ptr<float>();
  for (const std::int32_t token : tokens) {
    checkpoint::dequantize(embedding.stored, token * hidden, hidden, target);
    target += hidden;
  }
  return rows.to(options.dtype());
}

}  // namespace promptcached::model
