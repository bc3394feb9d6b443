#include "core/kv/tiers/circuit_breaker.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace promptcached::kv {
namespace {

using namespace std::chrono_literals;

// A breaker that opens after three failures, for 100 ms at first and 350 ms at most, under a clock that stands still.
struct Fixture {
  std::chrono::steady_clock::time_point now{};
  CircuitBreaker breaker{{.failures = 3, .first_pause = 100ms, .longest_pause = 350ms, .now = [this] { return now; }}};

  void fail(int times) {
    for (int i = 0; i < times; ++i) {
      REQUIRE(breaker.allow());
      breaker.failed();
    }
  }

  // Lets `pause` pass, and sees that nothing is let through before its end, and one operation at its end.
  void expect_pause(std::chrono::milliseconds pause) {
    now += pause - 1ms;
    CHECK_FALSE(breaker.allow());
    now += 1ms;
    CHECK(breaker.allow());
    CHECK_FALSE(breaker.allow());
    CHECK(breaker.open());
  }
};

TEST_CASE_METHOD(Fixture, "a breaker opens after failures in a row", "[breaker]") {
  fail(2);
  breaker.succeeded();
  fail(2);
  CHECK_FALSE(breaker.open());
  fail(1);
  CHECK(breaker.open());
  CHECK_FALSE(breaker.allow());
}

TEST_CASE_METHOD(Fixture, "a probe that succeeds closes the breaker", "[breaker]") {
  fail(3);
  expect_pause(100ms);
  breaker.succeeded();
  CHECK_FALSE(breaker.open());
  CHECK(breaker.allow());
  CHECK(breaker.allow());
  fail(2);
  CHECK_FALSE(breaker.open());
}

TEST_CASE_METHOD(Fixture, "each probe that fails doubles the pause, up to the longest", "[breaker]") {
  fail(3);
  for (const auto pause : {100ms, 200ms, 350ms, 350ms}) {
    expect_pause(pause);
    breaker.failed();
    CHECK_FALSE(breaker.allow());
  }
  expect_pause(350ms);
  breaker.succeeded();
  fail(3);
  expect_pause(100ms);  // from the beginning again
}

TEST_CASE_METHOD(Fixture, "failures that began before the breaker opened do not lengthen the pause", "[breaker]") {
  fail(3);
  breaker.failed();
  breaker.failed();
  expect_pause(100ms);
}

TEST_CASE_METHOD(Fixture, "a late success closes the breaker", "[breaker]") {
  fail(3);
  breaker.succeeded();
  CHECK(breaker.allow());
  CHECK_FALSE(breaker.open());
}

TEST_CASE_METHOD(Fixture, "a probe that never tells is followed by another", "[breaker]") {
  fail(3);
  expect_pause(100ms);
  expect_pause(100ms);
}

TEST_CASE_METHOD(Fixture, "of many threads one makes the probe", "[breaker]") {
  fail(3);
  now += 100ms;
  std::atomic<int> allowed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { allowed += breaker.allow() ? 1 : 0; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(allowed == 1);
}

TEST_CASE("a breaker without a clock takes the steady one", "[breaker]") {
  CircuitBreaker breaker({.failures = 1, .first_pause = 0ms, .longest_pause = 0ms, .now = nullptr});
  breaker.failed();
  CHECK(breaker.open());
  CHECK(breaker.allow());
}

}  // namespace
}  // namespace promptcached::kv
