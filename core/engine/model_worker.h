// ModelWorker: runs batches on the model and keeps its failures out of the engine.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/model/causal_lm.h"

namespace promptcached::engine {

class ModelWorker {
 public:
  explicit ModelWorker(model::CausalLm& model) : model_(model) {}

  // The one place where faults of libtorch (c10::Error, out of memory included) become a Status. Errors: kInternal.
  Result<model::Logits> run(const model::ForwardBatch& batch);

 private:
  model::CausalLm& model_;
};

}  // namespace promptcached::engine
