// MaskWorkers: the threads that compute the masks of grammars while the model runs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace promptcached::engine {

class MaskWorkers final {
 public:
  // No thread runs before the first task: most servers never have one.
  MaskWorkers() = default;
  MaskWorkers(const MaskWorkers&) = delete;
  MaskWorkers& operator=(const MaskWorkers&) = delete;
  ~MaskWorkers();  // tasks that have not begun are dropped

  // From any thread.
  void run(std::function<void()> task);

 private:
  void start();
  void work();

  std::mutex mutex_;  // guards all below: tasks come from HTTP threads and from the engine thread
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace promptcached::engine
