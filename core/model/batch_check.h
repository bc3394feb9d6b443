// Checks a ForwardBatch against the model before raw memory is touched.
#pragma once

#include "core/model/causal_lm.h"
#include "core/model/forward_batch.h"

namespace promptcached::model {

// Throws std::invalid_argument that says what is wrong: a programmer's fault, caught before it becomes a wild write.
void check_batch(const ForwardBatch& batch, const ModelInfo& info);

}  // namespace promptcached::model
