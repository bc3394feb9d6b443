#include "core/base/thread_team.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace promptcached {
namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

TEST_CASE("Every task runs once", "[thread_team]") {
  for (const int threads : {1, 2, 5}) {
    ThreadTeam team(threads);
    CHECK(team.threads() == threads);
    for (int job = 0; job < 3000; ++job) {
      const std::int64_t count = job % 37;
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      team.run(count, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
      for (const std::atomic<int>& times : runs) {
        REQUIRE(times == 1);
      }
    }
  }
}

TEST_CASE("What a task wrote is there when run() returns", "[thread_team]") {
  ThreadTeam team(3);
  std::vector<std::int64_t> values(1000);
  for (int job = 0; job < 200; ++job) {
    team.run(static_cast<std::int64_t>(values.size()),
             [&](std::int64_t i) { values[static_cast<std::size_t>(i)] += i; });
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    REQUIRE(values[i] == static_cast<std::int64_t>(i) * 200);
  }
}

TEST_CASE("Callers on two threads do not hold each other up", "[thread_team]") {
  ThreadTeam team(2);
  std::atomic<int> sum{0};
  const auto caller = [&] {
    for (int job = 0; job < 500; ++job) {
      team.run(8, [&](std::int64_t) { ++sum; });
    }
  };
  std::thread other(caller);
  caller();
  other.join();
  CHECK(sum == 2 * 500 * 8);
}

TEST_CASE("A task may use the team, and then works alone", "[thread_team]") {
  ThreadTeam team(2);
  std::atomic<int> sum{0};
  team.run(4, [&](std::int64_t) { team.run(4, [&](std::int64_t) { ++sum; }); });
  CHECK(sum == 16);
}

TEST_CASE("Helpers that wake up late find their work", "[thread_team]") {
  ThreadTeam team(3);
  for (int job = 0; job < 50; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // asleep by now
    std::atomic<int> sum{0};
    team.run(100, [&](std::int64_t) { ++sum; });
    REQUIRE(sum == 100);
  }
}

TEST_CASE("A team at rest takes no processor time", "[thread_team]") {
  ThreadTeam team(4);
  team.run(8, [](std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(cpu_seconds() - before < 0.05);
}

}  // namespace promptcached
