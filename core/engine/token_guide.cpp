#include "core/engine/token_guide.h"

#include <utility>

namespace promptcached::engine {

TokenGuide::TokenGuide(guide::Matcher matcher, std::size_t tokens, MaskWorkers& workers)
    : workers_(workers), matcher_(std::move(matcher)), mask_(guide::mask_words(tokens)) {}

void TokenGuide::prepare() {
  workers_.run([weak = weak_from_this()] {
    if (const std::shared_ptr<TokenGuide> guide = weak.lock()) {  // else its sequence has ended
      guide->compute();
    }
  });
}

// Nothing when the mask is there, or another thread is at it.
void TokenGuide::compute() {
  {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::kStale) {
      return;
    }
    stage_ = Stage::kComputing;
  }
  computed_ = matcher_.write_mask(mask_);
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::kReady;
  }
  ready_.notify_all();
}

Result<std::span<const std::uint32_t>> TokenGuide::mask() {
  compute();
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [this] { return stage_ == Stage::kReady; });
  if (!computed_) {
    return computed_.error();
  }
  return std::span<const std::uint32_t>(mask_);
}

Result<bool> TokenGuide::accept(std::int32_t token) {
  Result<bool> over = matcher_.accept(token);
  const std::lock_guard lock(mutex_);
  stage_ = Stage::kStale;
  return over;
}

}  // namespace promptcached::engine
