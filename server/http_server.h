// HttpServer: clients' connections to api::HttpRequest and back. cpp-httplib, which parses heads and writes responses,
// stays in http_server.cpp; sockets, threads, bodies and time limits are ours (connection_pool.h, connection.h,
// body_reader.h), because there the library's defaults do not fit a server of long streams.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "api/router.h"
#include "server/connection_watcher.h"
#include "server/listener.h"
#include "server/transport.h"

namespace promptcached::server {

class HttpServer final {
 public:
  struct Options {
    std::size_t max_connections = 1024;  // further ones are answered 503, unless an idle one can be closed for them
    std::size_t max_body_bytes = std::size_t{8} << 20;
    std::chrono::milliseconds idle_time{75'000};   // a kept-alive connection without a request
    std::chrono::milliseconds read_time{30'000};   // a request's head as a whole; silence within its body
    std::chrono::milliseconds write_time{30'000};  // a client that takes nothing of what is sent
  };

  // Serves from here on. Throws std::runtime_error when the address cannot be had. `tls` null: in the clear. References
  // must outlive the server.
  HttpServer(const Address& address, const Options& options, const api::Router& router, ConnectionWatcher& watcher,
             const TlsContext* tls);
  ~HttpServer();  // stop(0)
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

  // Connections are closed with their current response instead of being kept alive. New ones are still served.
  void close_after_responses();
  // Takes no new connections, lets running responses end within `grace`, cuts the rest, and returns when all threads
  // are done. Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace promptcached::server
