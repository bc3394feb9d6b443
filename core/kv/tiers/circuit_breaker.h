// CircuitBreaker: keeps requests away from something that has stopped working.
//
// Closed, it lets everything through. After `failures` in a row it opens and lets nothing through for a pause; then it
// lets one operation through to see. If that fails the next pause is twice as long, up to `longest_pause`; a success
// closes it. So a store that is dead costs a request a look at the clock, and the store one operation a pause.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

namespace promptcached::kv {

// Thread-safe.
class CircuitBreaker final {
 public:
  struct Options {
    std::int32_t failures = 3;  // in a row, until it opens
    std::chrono::milliseconds first_pause{1000};
    std::chrono::milliseconds longest_pause{60000};
    std::function<std::chrono::steady_clock::time_point()> now;  // null: the steady clock
  };

  explicit CircuitBreaker(Options options);

  // Whether to go ahead. Whoever gets true tells how it went by succeeded() or failed(); one that tells nothing costs
  // no more than the wait until another is let through.
  bool allow();
  void succeeded();
  void failed();

  bool open() const;
  // Whether allow() would say yes now; changes nothing.
  bool ready() const;

 private:
  const Options options_;

  // Guards all below: operations end on any thread.
  mutable std::mutex mutex_;
  std::int32_t failures_in_a_row_ = 0;
  bool open_ = false;
  bool probing_ = false;  // open, and one operation is under way to see
  std::chrono::milliseconds pause_;
  std::chrono::steady_clock::time_point next_probe_;
};

}  // namespace promptcached::kv
