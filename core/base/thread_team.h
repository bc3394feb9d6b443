// ThreadTeam: some threads that share the tasks of one caller, many times a millisecond.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <type_traits>
#include <vector>

namespace promptcached {

// The caller works too, and waits only for tasks that others have begun: when the machine is busy and a helper gets no
// processor, the caller does its work rather than wait for it, which is where barriers lose whole time slices.
//
// Helpers look for work for some microseconds after a task and then sleep; a team at rest takes no processor time.
class ThreadTeam final {
 public:
  // `threads` counts the caller; at least 1. Each helper runs `on_start` first.
  explicit ThreadTeam(int threads, std::function<void()> on_start = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // task(0) to task(count - 1), each once, in any order; returns when all are done. `task` must not throw. `count` is
  // less than 2^31. While one thread is in here, others do their tasks alone.
  template <typename Task>
  void run(std::int64_t count, const Task& task) {
    run(count, [](const void* context, std::int64_t index) { (*static_cast<const Task*>(context))(index); }, &task);
  }

 private:
  using Call = void (*)(const void* context, std::int64_t index);

  void run(std::int64_t count, Call call, const void* context);
  void help();
  // Takes tasks of the job `number` until none is left.
  void work(std::uint32_t number);

  // A job is told from the next by its number. `ticket_` holds the number in its high half and the next task in its low
  // one, so that a helper that comes late can never take a task of another job than the one it has read.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::uint32_t> job_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint32_t> done_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};  // one caller at a time
  std::function<void()> on_start_;
  std::vector<std::thread> helpers_;
};

}  // namespace promptcached
