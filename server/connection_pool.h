// ConnectionPool: accepts clients and gives each a thread as long as its connection lasts. What is read from and
// written to a connection is somebody else's business (http_server.cpp).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "server/connection.h"
#include "server/elastic_pool.h"
#include "server/listener.h"
#include "server/transport.h"

namespace promptcached::server {

class ConnectionPool final {
 public:
  struct Options {
    std::size_t max_connections = 0;
    std::chrono::milliseconds idle_time{};   // a connection without a request
    std::chrono::milliseconds write_time{};  // a client that takes nothing of what is sent
  };

  enum class After {
    kKeep,    // the connection can take another request
    kClose,   // it cannot
    kLinger,  // nor can it, and the client may still be sending what nobody reads
  };

  // What serves a connection. Both are called on the connection's thread.
  struct Handlers {
    // One request, whose first bytes are there. `closing`: the connection is to be closed after it.
    std::function<After(Connection& connection, const std::string& client, bool closing)> serve;
    // Tells a client that there is no room for it.
    std::function<void(Connection& connection)> refuse;
  };

  // Listens and accepts from here on. Throws std::runtime_error when the address cannot be had. `tls` null: in the
  // clear; it must outlive the pool.
  ConnectionPool(const Address& address, const Options& options, const TlsContext* tls, Handlers handlers);
  ~ConnectionPool();  // stop(0)
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  int port() const { return listener_.port(); }

  // Connections are closed with their current response instead of being kept. New ones are still served.
  void close_after_responses() { closing_ = true; }
  // Takes no new connections, lets running requests end within `grace`, cuts the rest, and returns when no thread is
  // left at work. Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  // What other threads may know of a connection.
  struct Entry {
    bool idle = true;      // between requests
    bool evicted = false;  // its thread has been told to end
    Connection::Clock::time_point since = Connection::Clock::now();
  };
  class Registration;

  void accept_clients();
  bool reserve_place();
  bool evict_idle();
  void give_place_back();
  void serve_connection(Accepted& accepted);
  void refuse_connection(Accepted& accepted);
  bool wait_for_request(Connection& connection);
  bool set_idle(const Connection& connection, bool idle);

  const Options options_;
  const TlsContext* const tls_;
  const Handlers handlers_;
  Listener listener_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;  // guards the two below; taken a few times a request, for moments
  std::condition_variable connection_ended_;
  std::size_t connections_ = 0;
  std::unordered_map<int, Entry> entries_;  // by socket

  ElasticPool threads_;  // after what its tasks use
  std::thread acceptor_;
};

}  // namespace promptcached::server
