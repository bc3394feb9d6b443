// The table of token embeddings. Only the rows of a batch's tokens are ever read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "core/checkpoint/stored_tensors.h"

namespace promptcached::model {

struct Embedding {
  at::Tensor table;                 // [vocab, hidden] on the device; undefined: rows are read from the file
  checkpoint::StoredTensor stored;  // the same, in the file's own format
};

// Rows `tokens` of the table: [tokens, hidden], with `options`.
at::Tensor gather(const Embedding& embedding, std::span<const std::int32_t> tokens, const at::TensorOptions& options);

}  // namespace promptcached::model
