#include "server/connection.h"

#include <string>
#include <thread>

#include "tests/unit/server/socket_pair.h"

namespace promptcached::server {
namespace {

using Clock = Connection::Clock;
using ReadFailure = Connection::ReadFailure;

std::string read_text(Connection& connection, std::size_t size) {
  std::string text(size, '\0');
  REQUIRE(connection.read_exactly(text.data(), size));
  return text;
}

}  // namespace

TEST_CASE("reads are buffered and keep their order", "[server]") {
  const SocketPair pair;
  pair.send("hello world");
  CHECK(read_text(*pair.connection, 5) == "hello");
  CHECK(pair.connection->wait_for_input(std::chrono::milliseconds(0)));
  CHECK(read_text(*pair.connection, 6) == " world");
}

TEST_CASE("reading ends where the limits say, and says why", "[server]") {
  const SocketPair pair;
  char c = 0;
  pair.send("abcdef");
  pair.connection->limit_reads(3, Clock::now() + std::chrono::seconds(5));
  CHECK(read_text(*pair.connection, 3) == "abc");
  CHECK(pair.connection->read(&c, 1) == 0);
  CHECK(pair.connection->read_failure() == ReadFailure::kLimit);
  CHECK(pair.connection->read(&c, 1) == 0);  // it stays so until there is a new limit
  pair.connection->limit_reads(100, Clock::now() + std::chrono::milliseconds(30));
  CHECK(read_text(*pair.connection, 3) == "def");
  const auto start = Clock::now();
  CHECK(pair.connection->read(&c, 1) == 0);
  CHECK(pair.connection->read_failure() == ReadFailure::kTimeout);
  CHECK(Clock::now() - start < std::chrono::seconds(2));
  pair.finish_sending();
  pair.connection->limit_reads(100, Clock::now() + std::chrono::seconds(5));
  CHECK(pair.connection->read(&c, 1) == 0);
  CHECK(pair.connection->read_failure() == ReadFailure::kClosed);
  CHECK_FALSE(pair.connection->wait_for_input(std::chrono::seconds(5)));
}

TEST_CASE("what is written leaves with a flush, or before a read that waits", "[server]") {
  const SocketPair pair;
  CHECK(pair.connection->write("one "));
  CHECK(pair.connection->write("two"));
  CHECK(pair.received().empty());
  CHECK(pair.connection->flush());
  CHECK(pair.received() == "one two");
  pair.connection->write("question");
  std::thread client([&] {
    std::string text;
    while (text.empty()) {
      text = pair.received();
    }
    pair.send("answer to " + text);
  });
  CHECK(read_text(*pair.connection, 18) == "answer to question");
  client.join();
}

TEST_CASE("a client that takes nothing, or has gone, fails the write", "[server]") {
  const SocketPair stuck(std::chrono::milliseconds(50));
  const std::string large(1 << 20, 'x');
  bool written = true;
  for (int i = 0; i < 64 && written; ++i) {
    written = stuck.connection->write(large);
  }
  CHECK_FALSE(written);
  CHECK(stuck.connection->write_failed());

  SocketPair gone;
  gone.client.reset();
  gone.connection->write("x");
  CHECK_FALSE(gone.connection->flush());
  CHECK_FALSE(gone.connection->write("y"));
}

TEST_CASE("large writes arrive whole", "[server]") {
  const SocketPair pair;
  std::string sent;
  for (int i = 0; i < 300'000; ++i) {
    sent += std::to_string(i);
  }
  std::string got;
  std::thread client([&] {
    while (got.size() < sent.size()) {
      got += pair.received();
    }
  });
  CHECK(pair.connection->write(sent));
  CHECK(pair.connection->flush());
  client.join();
  CHECK(got == sent);
}

TEST_CASE("closing lingers until the client has sent what it wanted to", "[server]") {
  SocketPair pair;
  pair.connection->write("refused");
  std::thread client([&] {
    for (int i = 0; i < 10; ++i) {
      pair.send(std::string(1000, 'x'));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pair.finish_sending();
  });
  pair.connection->close(/*linger=*/true);
  client.join();
  pair.connection.reset();
  CHECK(pair.received() == "refused");
}

}  // namespace promptcached::server
