// ChoiceStreams: the answers of one request to several prompts, or several answers to one, as they come.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/engine/token_stream.h"

namespace promptcached::api {

// One reader. cancel() may be called from any thread.
class ChoiceStreams final {
 public:
  explicit ChoiceStreams(std::vector<std::shared_ptr<engine::TokenStream>> streams);

  struct Item {
    std::size_t choice = 0;  // index of its stream
    engine::StreamEvent event;
  };
  // The next event of any; nullopt when none came within `wait`, or all are over.
  std::optional<Item> next(std::chrono::milliseconds wait);
  bool finished() const;
  void cancel() const;

 private:
  std::optional<Item> take();

  // Shared with the engine's notifications, which may still be under way when this goes.
  struct Arrivals {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t count = 0;
  };

  std::vector<std::shared_ptr<engine::TokenStream>> streams_;
  std::shared_ptr<Arrivals> arrivals_ = std::make_shared<Arrivals>();
  std::size_t turn_ = 0;  // whose event is taken first, so that none starves
};

}  // namespace promptcached::api
