#include "core/engine/mask_workers.h"

#include <algorithm>
#include <utility>

namespace promptcached::engine {

MaskWorkers::~MaskWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    tasks_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void MaskWorkers::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (threads_.empty()) {
      start();
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

// A mask takes microseconds as a rule, a step of the model milliseconds: few threads serve many sequences.
void MaskWorkers::start() {
  const unsigned count = std::clamp(std::thread::hardware_concurrency() / 4, 1U, 4U);
  for (unsigned i = 0; i < count; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

void MaskWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) {
      return;
    }
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace promptcached::engine
