// BoundedQueue: how work crosses from one thread to another without growing without limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace promptcached {

enum class PushResult { kPushed, kFull, kClosed };

// First in, first out; any number of producers and consumers. A producer never waits: a full queue is an answer the
// client gets (queue_full), not a thread that hangs. Consumers wait on a condition variable; nothing polls.
template <typename T>
class BoundedQueue final {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // `item` is moved from only when the answer is kPushed.
  PushResult try_push(T&& item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        return PushResult::kClosed;
      }
      if (items_.size() >= capacity_) {
        return PushResult::kFull;
      }
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return PushResult::kPushed;
  }

  // Waits for an item. Nullopt only once the queue is closed and what was in it has been taken.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !items_.empty(); });
    return take_front();
  }

  // The same, but nullopt also when `deadline` (of any clock) passes first.
  template <typename Clock, typename Duration>
  std::optional<T> pop_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, deadline, [this] { return closed_ || !items_.empty(); });
    return take_front();
  }

  // What is there now, without waiting.
  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return take_front();
  }

  // Refuses all further items and wakes every waiting consumer; what is in the queue can still be taken.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  std::size_t capacity() const { return capacity_; }

 private:
  // mutex_ is held.
  std::optional<T> take_front() {
    if (items_.empty()) {
      return std::nullopt;
    }
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const std::size_t capacity_;
  mutable std::mutex
      mutex_;  // guards items_ and closed_; held for a move of one item, never while waiting or notifying
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace promptcached
