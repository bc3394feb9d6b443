// Two ends of a connection: one for a Connection under test, one for the test to play the client.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/connection.h"
#include "server/transport.h"
#include "tests/catch.h"

namespace promptcached::server {

class SocketPair {
 public:
  explicit SocketPair(std::chrono::milliseconds stall = std::chrono::seconds(5)) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    client = FileDescriptor(fds[0]);
    connection = std::make_unique<Connection>(plain_transport(FileDescriptor(fds[1])), stall);
    connection->limit_reads(1 << 20, Connection::Clock::now() + std::chrono::seconds(5));
  }

  void send(std::string_view data) const {
    REQUIRE(::send(client.get(), data.data(), data.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(data.size()));
  }
  void finish_sending() const { ::shutdown(client.get(), SHUT_WR); }
  // What has arrived, without waiting.
  std::string received() const {
    char data[65536];
    const ssize_t count = ::recv(client.get(), data, sizeof data, 0);
    return count > 0 ? std::string(data, static_cast<std::size_t>(count)) : std::string();
  }

  FileDescriptor client;
  std::unique_ptr<Connection> connection;
};

}  // namespace promptcached::server
