// ConnectionWatcher: tells when a client goes away while its request is being worked on. One thread watches all of
// them; nothing polls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "api/http_types.h"
#include "core/base/file_descriptor.h"

namespace promptcached::server {

class ConnectionWatcher final {
 public:
  ConnectionWatcher();   // throws std::runtime_error when the kernel has no epoll instance left
  ~ConnectionWatcher();  // every watch must be gone
  ConnectionWatcher(const ConnectionWatcher&) = delete;
  ConnectionWatcher& operator=(const ConnectionWatcher&) = delete;

  // Calls `gone` once if the other end of `socket` closes or resets it. A client that shuts down only its sending side
  // counts as gone as well: HTTP clients do not do that, and it looks the same as a close. One watch for a socket at a
  // time; the socket must outlive it.
  std::unique_ptr<api::DisconnectWatch> watch(int socket, std::function<void()> gone);

 private:
  class Watch;
  void run();
  void remove(std::uint64_t id, int socket);

  FileDescriptor epoll_;
  FileDescriptor stop_;
  std::mutex mutex_;  // guards all below, and is held while a callback runs: so removing a watch waits for its callback
  std::unordered_map<std::uint64_t, std::function<void()>> callbacks_;
  std::uint64_t next_id_ = 1;
  std::thread thread_;
};

}  // namespace promptcached::server
