#include "core/engine/model_worker.h"

#include <exception>
#include <string>

namespace promptcached::engine {

Result<model::Logits> ModelWorker::run(const model::ForwardBatch& batch) {
  try {
    return model_.forward(batch);
  } catch (const std::exception& fault) {  // c10::Error and std::bad_alloc are both std::exceptions
    const std::string what = fault.what();
    return make_error(ErrorCode::kInternal, "the model failed: " + what.substr(0, what.find('\n')));
  }
}

}  // namespace promptcached::engine
