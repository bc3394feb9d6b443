#include "core/engine/token_stream.h"

#include <utility>

namespace promptcached::engine {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

std::optional<StreamEvent> TokenStream::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, wait, [this] { return !events_.empty() || closed_; });
  if (events_.empty()) {
    return std::nullopt;
  }
  StreamEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool TokenStream::finished() const {
  const std::lock_guard lock(mutex_);
  return closed_ && events_.empty();
}

void TokenStream::cancel() {
  const std::lock_guard lock(mutex_);
  // Once the last event is in, nobody is left to wake: the engine itself may be gone.
  if (!cancelled_.exchange(true) && wake_ && !closed_) {
    wake_();
  }
}

void TokenStream::push(StreamEvent event) {
  std::shared_ptr<const std::function<void()>> notify;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return;
    }
    closed_ = std::holds_alternative<DoneEvent>(event) || std::holds_alternative<Error>(event);
    events_.push_back(std::move(event));
    notify = notify_;
  }
  arrived_.notify_one();
  if (notify != nullptr) {
    (*notify)();
  }
}

void TokenStream::on_event(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::make_shared<const std::function<void()>>(std::move(notify));
}

void TokenStream::on_cancel(std::function<void()> wake) { wake_ = std::move(wake); }

}  // namespace promptcached::engine
