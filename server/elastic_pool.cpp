#include "server/elastic_pool.h"

#include <system_error>
#include <thread>
#include <utility>

#include "core/base/log.h"

namespace promptcached::server {

ElasticPool::ElasticPool(const Options& options) : options_(options) {}

ElasticPool::~ElasticPool() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  task_ready_.notify_all();
  thread_ended_.wait(lock, [this] { return threads_ == 0; });
}

bool ElasticPool::try_run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) {
    return false;
  }
  tasks_.push_back(std::move(task));
  if (tasks_.size() <= idle_) {
    task_ready_.notify_one();
    return true;
  }
  if (threads_ < options_.max_threads && start_thread()) {
    return true;
  }
  tasks_.pop_back();
  return false;
}

// mutex_ is held. Detached: the destructor waits by count, and a thread that has counted itself out touches nothing.
bool ElasticPool::start_thread() {
  try {
    std::thread([this] { work(); }).detach();
  } catch (const std::system_error& error) {
    log::error("cannot start a thread for a connection: {}", error.what());
    return false;
  }
  ++threads_;
  ++idle_;
  return true;
}

void ElasticPool::work() {
  std::unique_lock lock(mutex_);
  while (task_ready_.wait_for(lock, options_.idle_time, [this] { return stopping_ || !tasks_.empty(); }) &&
         !tasks_.empty()) {
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++idle_;
  }
  --idle_;
  --threads_;
  thread_ended_.notify_all();
}

std::size_t ElasticPool::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_;
}

}  // namespace promptcached::server
