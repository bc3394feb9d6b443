#include "core/base/bounded_queue.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace promptcached {
namespace {

using namespace std::chrono_literals;

TEST_CASE("items come out in the order they went in", "[base]") {
  BoundedQueue<int> queue(3);
  CHECK(queue.capacity() == 3);
  for (int i = 1; i <= 3; ++i) {
    CHECK(queue.try_push(int{i}) == PushResult::kPushed);
  }
  CHECK(queue.size() == 3);
  CHECK(queue.pop() == 1);
  CHECK(queue.try_pop() == 2);
  CHECK(queue.pop() == 3);
  CHECK_FALSE(queue.try_pop());
}

TEST_CASE("an item that is refused is still the producer's", "[base]") {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  CHECK(queue.try_push(std::make_unique<int>(1)) == PushResult::kPushed);
  auto item = std::make_unique<int>(2);
  CHECK(queue.try_push(std::move(item)) == PushResult::kFull);
  REQUIRE(item != nullptr);  // NOLINT(bugprone-use-after-move): that it was not moved from is the promise
  queue.close();
  CHECK(queue.try_push(std::move(item)) == PushResult::kClosed);
  CHECK(item != nullptr);  // NOLINT(bugprone-use-after-move)
}

TEST_CASE("a queue without room takes nothing", "[base]") {
  BoundedQueue<int> queue(0);
  CHECK(queue.try_push(1) == PushResult::kFull);
}

TEST_CASE("a closed queue gives what it holds, then nothing", "[base]") {
  BoundedQueue<int> queue(2);
  queue.try_push(1);
  queue.try_push(2);
  CHECK_FALSE(queue.closed());
  queue.close();
  queue.close();
  CHECK(queue.closed());
  CHECK(queue.pop() == 1);
  CHECK(queue.pop_until(std::chrono::steady_clock::now() + 1h) == 2);
  CHECK_FALSE(queue.pop());
}

TEST_CASE("closing wakes every waiting consumer", "[base][threads]") {
  BoundedQueue<int> queue(1);
  std::atomic<int> woken{0};
  std::vector<std::thread> consumers;
  consumers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    consumers.emplace_back([&] { woken += queue.pop().has_value() ? 0 : 1; });
  }
  std::this_thread::sleep_for(5ms);  // lets them wait; the test holds whether or not they do yet
  queue.close();
  for (std::thread& consumer : consumers) {
    consumer.join();
  }
  CHECK(woken == 3);
}

TEST_CASE("waiting until a deadline ends at the deadline, or with an item", "[base][threads]") {
  BoundedQueue<int> queue(1);
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(queue.pop_until(start + 20ms));
  CHECK(std::chrono::steady_clock::now() - start >= 20ms);
  std::thread producer([&] { queue.try_push(7); });
  CHECK(queue.pop_until(std::chrono::steady_clock::now() + 1min) == 7);
  producer.join();
}

TEST_CASE("many producers and consumers lose and double nothing", "[base][threads]") {
  constexpr int kProducers = 3;
  constexpr int kItems = 5000;
  BoundedQueue<int> queue(16);
  std::vector<std::atomic<int>> seen(kProducers * kItems);
  std::atomic<bool> out_of_order{false};
  std::vector<std::thread> consumers;
  consumers.reserve(2);
  for (int c = 0; c < 2; ++c) {
    consumers.emplace_back([&] {
      std::vector<int> last(kProducers, -1);
      while (auto item = queue.pop()) {
        ++seen[static_cast<std::size_t>(*item)];
        int& previous = last[static_cast<std::size_t>(*item / kItems)];
        out_of_order = out_of_order || *item <= previous;
        previous = *item;
      }
    });
  }
  std::vector<std::thread> producers;
  producers.reserve(kProducers);
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItems; ++i) {
        while (queue.try_push(p * kItems + i) == PushResult::kFull) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& producer : producers) {
    producer.join();
  }
  queue.close();
  for (std::thread& consumer : consumers) {
    consumer.join();
  }
  int wrong = 0;
  for (const auto& count : seen) {
    wrong += count == 1 ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK_FALSE(out_of_order);
}

}  // namespace
}  // namespace promptcached
