#include "core/kv/tiers/circuit_breaker.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace promptcached::kv {
namespace {

CircuitBreaker::Options with_clock(CircuitBreaker::Options options) {
  assert(options.failures > 0);
  if (!options.now) {
    options.now = [] { return std::chrono::steady_clock::now(); };
  }
  return options;
}

}  // namespace

CircuitBreaker::CircuitBreaker(Options options)
    : options_(with_clock(std::move(options))), pause_(options_.first_pause) {}

bool CircuitBreaker::allow() {
  const std::lock_guard lock(mutex_);
  if (!open_) {
    return true;
  }
  const auto now = options_.now();
  if (now < next_probe_) {
    return false;
  }
  probing_ = true;
  next_probe_ = now + pause_;  // for the next one, should this one never tell
  return true;
}

void CircuitBreaker::succeeded() {
  const std::lock_guard lock(mutex_);
  open_ = false;
  probing_ = false;
  failures_in_a_row_ = 0;
  pause_ = options_.first_pause;
}

void CircuitBreaker::failed() {
  const std::lock_guard lock(mutex_);
  if (open_ && !probing_) {
    return;  // begun before it opened: nothing new
  }
  if (open_) {
    pause_ = std::min(2 * pause_, options_.longest_pause);
  } else if (++failures_in_a_row_ < options_.failures) {
    return;
  }
  open_ = true;
  probing_ = false;
  next_probe_ = options_.now() + pause_;
}

bool CircuitBreaker::ready() const {
  const std::lock_guard lock(mutex_);
  return !open_ || options_.now() >= next_probe_;
}

bool CircuitBreaker::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

}  // namespace promptcached::kv
