#include "core/base/thread_team.h"

#include <chrono>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace promptcached {
namespace {

// How long a thread looks before it sleeps: longer than what lies between two loops of a step, shorter than what
// waking another thread costs several times over.
constexpr std::chrono::microseconds kPatience{50};
constexpr std::uint32_t kClosed = 0xFFFFFFFF;  // no job has so many tasks
constexpr int kLooksPerClock = 64;             // reading the clock costs as much as some looks

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether `ready` came true in time.
template <typename Ready>
bool look_for(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (ready()) {
        return true;
      }
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadTeam::ThreadTeam(int threads, std::function<void()> on_start) : on_start_(std::move(on_start)) {
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this] { help(); });
  }
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  ++job_;
  job_.notify_all();
  for (std::thread& helper : helpers_) {
    helper.join();
  }
}

void ThreadTeam::run(std::int64_t count, Call call, const void* context) {
  if (count <= 1 || helpers_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
    for (std::int64_t i = 0; i < count; ++i) {
      call(context, i);
    }
    return;
  }
  const std::uint32_t number = job_.load(std::memory_order_relaxed) + 1;
  // Closed before the job is written: a helper that is late for the last job, and reads this one's larger count with
  // the last one's ticket, must not get a task by it.
  ticket_.store(std::uint64_t{number} << 32U | kClosed);
  call_.store(call, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  count_.store(static_cast<std::uint32_t>(count), std::memory_order_release);
  done_.store(0, std::memory_order_release);
  ticket_.store(std::uint64_t{number} << 32U, std::memory_order_release);
  job_.store(number);
  if (sleepers_.load() > 0) {
    job_.notify_all();
  }
  work(number);
  // Only what helpers have begun is left.
  const auto finished = [&] { return done_.load(std::memory_order_acquire) == static_cast<std::uint32_t>(count); };
  if (!look_for(finished)) {
    while (!finished()) {
      const std::uint32_t done = done_.load(std::memory_order_acquire);
      if (done != static_cast<std::uint32_t>(count)) {
        done_.wait(done, std::memory_order_acquire);
      }
    }
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadTeam::work(std::uint32_t number) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const Call call = call_.load(std::memory_order_acquire);
    const void* context = context_.load(std::memory_order_acquire);
    const std::uint32_t count = count_.load(std::memory_order_acquire);
    const auto index = static_cast<std::uint32_t>(ticket);
    if (ticket >> 32U != number || index >= count) {
      return;
    }
    // Success means that the job read above is still this one; it then lives until its last task is done.
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    call(context, index);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      done_.notify_one();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadTeam::help() {
  if (on_start_) {
    on_start_();
  }
  std::uint32_t seen = 0;
  while (!stop_) {
    work(seen);
    const auto is_new = [&] { return job_.load(std::memory_order_acquire) != seen; };
    if (!look_for(is_new)) {
      ++sleepers_;  // before the value is looked at again, after which run() sees it
      job_.wait(seen);
      --sleepers_;
    }
    seen = job_.load(std::memory_order_acquire);
  }
}

}  // namespace promptcached
