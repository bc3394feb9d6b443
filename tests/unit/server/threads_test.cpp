#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "server/connection_watcher.h"
#include "server/elastic_pool.h"
#include "tests/unit/server/socket_pair.h"

namespace promptcached::server {
namespace {

// Holds tasks back until they are let go.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_until_waiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("the pool runs as many tasks at once as it may, and refuses more", "[server]") {
  Gate gate;
  std::atomic<int> done{0};
  {
    ElasticPool pool({.max_threads = 4, .idle_time = std::chrono::seconds(10)});
    for (int i = 0; i < 4; ++i) {
      CHECK(pool.try_run([&] {
        gate.wait();
        ++done;
      }));
    }
    gate.wait_until_waiting(4);  // all four run: none waits behind another
    CHECK_FALSE(pool.try_run([] {}));
    CHECK(pool.threads() == 4);
    gate.open();
    CHECK(eventually([&] { return pool.try_run([&] { ++done; }); }));
  }
  CHECK(done == 5);  // the destructor has waited
}

TEST_CASE("threads are used again, and go when they are idle", "[server]") {
  ElasticPool pool({.max_threads = 100, .idle_time = std::chrono::milliseconds(20)});
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> done{false};
    REQUIRE(pool.try_run([&] { done = true; }));
    REQUIRE(eventually([&] { return done.load(); }));
  }
  CHECK(pool.threads() < 20);
  CHECK(eventually([&] { return pool.threads() == 0; }));
  std::atomic<bool> done{false};
  CHECK(pool.try_run([&] { done = true; }));
  CHECK(eventually([&] { return done.load(); }));
}

TEST_CASE("many producers", "[server]") {
  std::atomic<int> ran{0};
  std::atomic<int> taken{0};
  {
    ElasticPool pool({.max_threads = 8, .idle_time = std::chrono::milliseconds(1)});
    std::vector<std::thread> producers;
    for (int t = 0; t < 4; ++t) {
      producers.emplace_back([&] {
        for (int i = 0; i < 500; ++i) {
          taken += pool.try_run([&] { ++ran; }) ? 1 : 0;
        }
      });
    }
    for (std::thread& producer : producers) {
      producer.join();
    }
  }
  CHECK(taken > 0);
  CHECK(ran == taken);
}

TEST_CASE("a client that closes is noticed, once", "[server]") {
  ConnectionWatcher watcher;
  SocketPair pair;
  SocketPair other;
  std::atomic<int> gone{0};
  std::atomic<int> other_gone{0};
  const auto watch = watcher.watch(pair.connection->fd(), [&] { ++gone; });
  const auto other_watch = watcher.watch(other.connection->fd(), [&] { ++other_gone; });
  pair.send("a pipelined request is no farewell");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(gone == 0);
  pair.client.reset();
  CHECK(eventually([&] { return gone == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(gone == 1);
  CHECK(other_gone == 0);
}

TEST_CASE("a client that had gone before is noticed too", "[server]") {
  ConnectionWatcher watcher;
  SocketPair pair;
  pair.client.reset();
  std::atomic<bool> gone{false};
  const auto watch = watcher.watch(pair.connection->fd(), [&] { gone = true; });
  CHECK(eventually([&] { return gone.load(); }));
}

TEST_CASE("once a watch is gone its callback does not run", "[server]") {
  ConnectionWatcher watcher;
  for (int i = 0; i < 300; ++i) {
    SocketPair pair;
    auto alive = std::make_unique<std::atomic<int>>(0);
    auto watch = watcher.watch(pair.connection->fd(), [&alive] { ++*alive; });
    std::thread client([&] { pair.client.reset(); });
    watch.reset();
    alive.reset();  // a callback after this would crash
    client.join();
  }
}

TEST_CASE("a socket can be watched again, request after request", "[server]") {
  ConnectionWatcher watcher;
  SocketPair pair;
  std::atomic<int> gone{0};
  for (int i = 0; i < 3; ++i) {
    const auto watch = watcher.watch(pair.connection->fd(), [&] { ++gone; });
  }
  const auto watch = watcher.watch(pair.connection->fd(), [&] { ++gone; });
  pair.client.reset();
  CHECK(eventually([&] { return gone == 1; }));
}

}  // namespace promptcached::server
