// ElasticPool: threads for connections. As many as there are connections, so that a stream which lasts minutes takes
// nobody else's thread; idle ones are used again and go after a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace promptcached::server {

class ElasticPool final {
 public:
  struct Options {
    std::size_t max_threads = 1024;
    std::chrono::milliseconds idle_time{30'000};  // a thread without work for so long ends
  };

  explicit ElasticPool(const Options& options);
  ~ElasticPool();  // waits until all tasks have ended
  ElasticPool(const ElasticPool&) = delete;
  ElasticPool& operator=(const ElasticPool&) = delete;

  // Runs `task` at once, on an idle or a new thread. False when max_threads are busy or no thread can be had: the task
  // was not taken. Tasks must not throw.
  bool try_run(std::function<void()> task);

  std::size_t threads() const;

 private:
  void work();
  bool start_thread();

  const Options options_;
  mutable std::mutex mutex_;  // guards all below; never held while a task runs
  std::condition_variable task_ready_;
  std::condition_variable thread_ended_;
  std::deque<std::function<void()>> tasks_;  // never more than idle_: each waits for a thread already woken
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace promptcached::server
