// TransferCost: what it takes to get a module from a tier, as far as has been seen.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>

namespace promptcached::kv {

// A moving average of a delay and of a time for each byte. What was seen long ago counts no more: a tier that was slow
// is tried again. Thread-safe.
class TransferCost final {
 public:
  using Clock = std::chrono::steady_clock;

  void observe(std::size_t bytes, double seconds, Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    const bool is_old = now - last_ > kForget;
    last_ = now;
    if (bytes < kSmall) {
      delay_ = is_old || delay_ == 0 ? seconds : mix(delay_, seconds);
    } else {
      const double each = std::max(seconds - delay_, 0.0) / static_cast<double>(bytes);
      each_byte_ = is_old || each_byte_ == 0 ? each : mix(each_byte_, each);
    }
  }

  // Seconds; 0 when nothing is known.
  double estimate(std::size_t bytes, Clock::time_point now = Clock::now()) const {
    const std::lock_guard lock(mutex_);
    return now - last_ > kForget ? 0 : delay_ + static_cast<double>(bytes) * each_byte_;
  }
  // However long ago it was seen.
  double last_known(std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    return delay_ + static_cast<double>(bytes) * each_byte_;
  }

 private:
  static constexpr std::size_t kSmall = std::size_t{256} << 10;
  static constexpr std::chrono::seconds kForget{30};
  static double mix(double old, double seen) { return 0.7 * old + 0.3 * seen; }

  mutable std::mutex mutex_;  // the mover's threads observe, the engine's asks
  double delay_ = 0;
  double each_byte_ = 0;
  Clock::time_point last_{};
};

}  // namespace promptcached::kv
