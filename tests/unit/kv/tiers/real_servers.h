// Real servers for the remote tier's tests: each in a process and a folder of its own, on a free port of 127.0.0.1.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_directory.h"

namespace promptcached::kv {

int free_port();

// Runs a command to its end; fails the test unless it ends with 0. What it says goes to `log`.
void run_command(const std::vector<std::string>& command, const std::string& log);

// A server that listens on `port`, killed by its process id at the end.
class ServerProcess final {
 public:
  // Returns once `port` takes connections; fails the test when it never does, or the program is not installed.
  ServerProcess(std::vector<std::string> command, int port, std::string log);
  ~ServerProcess() { kill(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  void kill();    // as kill -9 does
  void start();   // again, after kill()
  void freeze();  // it keeps its connections, and the kernel goes on to take new ones, but it answers nothing
  void thaw();

 private:
  std::vector<std::string> command_;
  int port_;
  std::string log_;
  pid_t pid_ = 0;
};

class RedisServer final {
 public:
  explicit RedisServer(const std::vector<std::string>& options = {});
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  ServerProcess& process() { return process_; }

 private:
  TemporaryDirectory folder_;
  int port_;
  ServerProcess process_;
};

// moto's server (Python): S3 in memory, with one bucket, "bucket".
class S3Server final {
 public:
  S3Server();
  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  ServerProcess& process() { return process_; }
  void make_bucket() const;

 private:
  TemporaryDirectory folder_;
  int port_;
  ServerProcess process_;
};

// A line to a server that delivers the server's answers slowly: `bytes_per_second`, and after `stall_after` bytes of
// one connection no more.
class SlowLine final {
 public:
  struct Options {
    std::size_t bytes_per_second = SIZE_MAX;
    std::size_t stall_after = SIZE_MAX;
  };
  SlowLine(int server_port, Options options);
  ~SlowLine();
  SlowLine(const SlowLine&) = delete;
  SlowLine& operator=(const SlowLine&) = delete;
  int port() const { return port_; }

 private:
  void accept_all();
  void carry(int client);
  void answer(int server, int client);

  const Options options_;
  const int server_port_;
  int port_ = 0;
  int listener_ = -1;
  std::atomic<bool> closing_ = false;
  std::mutex mutex_;  // guards what follows: connections come on the accepting thread and end on their own
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::thread accepting_;
};

}  // namespace promptcached::kv
