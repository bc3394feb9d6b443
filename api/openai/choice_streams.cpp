#include "api/openai/choice_streams.h"

#include <algorithm>
#include <utility>

namespace promptcached::api {

ChoiceStreams::ChoiceStreams(std::vector<std::shared_ptr<engine::TokenStream>> streams) : streams_(std::move(streams)) {
  for (const auto& stream : streams_) {
    stream->on_event([arrivals = arrivals_] {
      {
        const std::lock_guard lock(arrivals->mutex);
        ++arrivals->count;
      }
      arrivals->changed.notify_one();
    });
  }
}

std::optional<ChoiceStreams::Item> ChoiceStreams::next(std::chrono::milliseconds wait) {
  const auto until = std::chrono::steady_clock::now() + wait;
  std::unique_lock lock(arrivals_->mutex);
  for (;;) {
    const std::uint64_t seen = arrivals_->count;
    lock.unlock();
    std::optional<Item> item = take();
    if (item || finished()) {
      return item;
    }
    lock.lock();
    if (!arrivals_->changed.wait_until(lock, until, [&] { return arrivals_->count != seen; })) {
      return std::nullopt;
    }
  }
}

std::optional<ChoiceStreams::Item> ChoiceStreams::take() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::size_t choice = (turn_ + i) % streams_.size();
    if (auto event = streams_[choice]->next(std::chrono::milliseconds(0))) {
      turn_ = choice + 1;
      return Item{choice, std::move(*event)};
    }
  }
  return std::nullopt;
}

bool ChoiceStreams::finished() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->finished(); });
}

void ChoiceStreams::cancel() const {
  for (const auto& stream : streams_) {
    stream->cancel();
  }
}

}  // namespace promptcached::api
