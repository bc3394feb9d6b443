#include "server/connection_pool.h"

#include <sys/socket.h>

#include <exception>
#include <memory>
#include <utility>

#include "core/base/log.h"

namespace promptcached::server {
namespace {

// Threads beyond max_connections, which tell clients that there is no room.
constexpr std::size_t kRefusers = 16;
constexpr auto kRefusalTime = std::chrono::seconds(1);

}  // namespace

// A connection's entry. Goes before the descriptor is closed and its number used again.
class ConnectionPool::Registration final {
 public:
  Registration(ConnectionPool& pool, int socket) : pool_(pool), socket_(socket) {
    const std::lock_guard lock(pool_.mutex_);
    pool_.entries_.emplace(socket_, Entry{});
  }
  ~Registration() {
    const std::lock_guard lock(pool_.mutex_);
    pool_.entries_.erase(socket_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  ConnectionPool& pool_;
  const int socket_;
};

ConnectionPool::ConnectionPool(const Address& address, const Options& options, const TlsContext* tls, Handlers handlers)
    : options_(options),
      tls_(tls),
      handlers_(std::move(handlers)),
      listener_(address),
      threads_({.max_threads = options.max_connections + kRefusers}) {
  acceptor_ = std::thread([this] { accept_clients(); });
}

ConnectionPool::~ConnectionPool() { stop(std::chrono::milliseconds(0)); }

void ConnectionPool::accept_clients() {
  while (auto accepted = listener_.accept()) {
    const bool room = reserve_place();
    auto client = std::make_shared<Accepted>(std::move(*accepted));  // std::function wants a copyable callable
    const bool taken = threads_.try_run([this, room, client] {
      try {
        room ? serve_connection(*client) : refuse_connection(*client);
      } catch (const std::exception& fault) {  // out of memory, in all likelihood: one connection's end, no more
        log::error("a connection ended by an exception: {}", fault.what());
      }
      if (room) {
        give_place_back();
      }
    });
    if (!taken && room) {
      give_place_back();
    }
  }
}

// A place for one more connection, if need be by closing the one that has been idle longest.
bool ConnectionPool::reserve_place() {
  const std::lock_guard lock(mutex_);
  if (connections_ >= options_.max_connections && !evict_idle()) {
    return false;
  }
  ++connections_;
  return true;
}

// mutex_ is held.
bool ConnectionPool::evict_idle() {
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (entry.idle && !entry.evicted && (oldest == entries_.end() || entry.since < oldest->second.since)) {
      oldest = it;
    }
  }
  if (oldest == entries_.end()) {
    return false;
  }
  oldest->second.evicted = true;
  ::shutdown(oldest->first, SHUT_RD);  // its thread wakes up as if the client had closed
  return true;
}

void ConnectionPool::give_place_back() {
  const std::lock_guard lock(mutex_);
  --connections_;
  connection_ended_.notify_all();
}

void ConnectionPool::refuse_connection(Accepted& accepted) {
  if (tls_ != nullptr) {
    return;  // a handshake is more than a refusal is worth
  }
  Connection connection(plain_transport(std::move(accepted.socket)), kRefusalTime);
  handlers_.refuse(connection);
  connection.flush();
  // Take what the client has sent, so that closing does not reset the connection under the answer.
  connection.wait_for_input(kRefusalTime);
  connection.close(/*linger=*/false);
}

void ConnectionPool::serve_connection(Accepted& accepted) {
  Connection connection(
      tls_ != nullptr ? tls_->wrap(std::move(accepted.socket)) : plain_transport(std::move(accepted.socket)),
      options_.write_time);
  const Registration registration(*this, connection.fd());
  After after = After::kKeep;
  while (after == After::kKeep && wait_for_request(connection)) {
    after = handlers_.serve(connection, accepted.remote_address, closing_.load());
  }
  connection.close(/*linger=*/after == After::kLinger);
}

// False when there will be no further request.
bool ConnectionPool::wait_for_request(Connection& connection) {
  set_idle(connection, true);
  const bool there = !stopping_.load() && connection.wait_for_input(options_.idle_time);
  return set_idle(connection, false) && there;
}

// False when the connection was given up meanwhile.
bool ConnectionPool::set_idle(const Connection& connection, bool idle) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(connection.fd());
  entry.idle = idle;
  entry.since = Connection::Clock::now();
  return !entry.evicted;
}

void ConnectionPool::stop(std::chrono::milliseconds grace) {
  closing_ = true;
  stopping_ = true;
  listener_.stop();
  if (acceptor_.joinable()) {
    acceptor_.join();
  }
  std::unique_lock lock(mutex_);
  for (auto& [socket, entry] : entries_) {
    if (entry.idle) {
      entry.evicted = true;
      ::shutdown(socket, SHUT_RD);
    }
  }
  const auto none_left = [this] { return connections_ == 0; };
  if (!connection_ended_.wait_for(lock, grace, none_left)) {
    for (auto& [socket, entry] : entries_) {
      ::shutdown(socket, SHUT_RDWR);
    }
    connection_ended_.wait(lock, none_left);
  }
}

}  // namespace promptcached::server
