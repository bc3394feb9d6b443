#include "tests/unit/kv/tiers/real_servers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/catch.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace promptcached::kv {
namespace {

using namespace std::chrono_literals;

sockaddr_in address_of(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// A socket that listens on `port` (0: any), which it sets to what it got.
int listen_on(int& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(socket >= 0);
  sockaddr_in address = address_of(port);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(socket, 64) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return socket;
}

// -1 when nobody listens there.
int connect_to(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = address_of(port);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return socket;
  }
  ::close(socket);
  return -1;
}

bool send_all(int socket, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket, data, size, MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

pid_t spawn(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  INFO(command[0] << " is not to be had (" << std::strerror(error) << "): scripts/setup.sh python test");
  REQUIRE(error == 0);
  return pid;
}

std::string python() {
  const char* const named = std::getenv("PROMPTCACHED_TEST_PYTHON");
  return named != nullptr ? named : std::string(PROMPTCACHED_SOURCE_DIR) + "/.venv/bin/python";
}

}  // namespace

int free_port() {
  int port = 0;
  ::close(listen_on(port));
  return port;
}

void run_command(const std::vector<std::string>& command, const std::string& log) {
  int status = 0;
  REQUIRE(::waitpid(spawn(command, log), &status, 0) > 0);
  INFO(read_file(log));
  REQUIRE(status == 0);
}

ServerProcess::ServerProcess(std::vector<std::string> command, int port, std::string log)
    : command_(std::move(command)), port_(port), log_(std::move(log)) {
  start();
}

void ServerProcess::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
}

void ServerProcess::start() {
  pid_ = spawn(command_, log_);
  for (const auto end = std::chrono::steady_clock::now() + 180s; std::chrono::steady_clock::now() < end;) {
    if (const int socket = connect_to(port_); socket >= 0) {
      ::close(socket);
      return;
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = 0;
      break;
    }
    std::this_thread::sleep_for(10ms);
  }
  kill();
  INFO(read_file(log_));
  FAIL(command_[0] << " did not come up");
}

void ServerProcess::freeze() { REQUIRE(::kill(pid_, SIGSTOP) == 0); }

void ServerProcess::thaw() { REQUIRE(::kill(pid_, SIGCONT) == 0); }

namespace {

std::vector<std::string> redis_command(const TemporaryDirectory& folder, int port,
                                       const std::vector<std::string>& options) {
  // Nothing is written to disk, and a client that is 64 MiB behind is no fault.
  std::vector<std::string> command = {"redis-server",         "--bind",       "127.0.0.1", "--dir",
                                      folder.path().string(), "--save",       "",          "--port",
                                      std::to_string(port),   "--appendonly", "no"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

}  // namespace

RedisServer::RedisServer(const std::vector<std::string>& options)
    : port_(free_port()), process_(redis_command(folder_, port_, options), port_, folder_.file("log")) {}

S3Server::S3Server()
    : port_(free_port()),
      process_({python(), "-m", "moto.server", "-H", "127.0.0.1", "-p", std::to_string(port_)}, port_,
               folder_.file("log")) {
  make_bucket();
}

void S3Server::make_bucket() const {
  const int socket = connect_to(port_);
  REQUIRE(socket >= 0);
  const std::string request = "PUT /bucket HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port_) +
                              "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  REQUIRE(send_all(socket, request.data(), request.size()));
  char answer[64] = {};
  REQUIRE(::recv(socket, answer, sizeof(answer) - 1, MSG_WAITALL) > 12);
  ::close(socket);
  REQUIRE(std::string(answer).substr(9, 3) == "200");
}

SlowLine::SlowLine(int server_port, Options options) : options_(options), server_port_(server_port) {
  listener_ = listen_on(port_);
  accepting_ = std::thread([this] { accept_all(); });
}

SlowLine::~SlowLine() {
  closing_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  ::close(listener_);
  for (const int socket : sockets_) {
    ::shutdown(socket, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
  for (const int socket : sockets_) {
    ::close(socket);
  }
}

void SlowLine::accept_all() {
  while (!closing_) {
    if (const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); client >= 0) {
      carry(client);
    }
  }
}

void SlowLine::carry(int client) {
  const int server = connect_to(server_port_);
  const std::lock_guard lock(mutex_);
  sockets_.push_back(client);
  if (server < 0) {
    ::shutdown(client, SHUT_RDWR);
    return;
  }
  sockets_.push_back(server);
  threads_.emplace_back([client, server] {
    std::vector<char> buffer(1 << 16);
    for (ssize_t size = 0; (size = ::recv(client, buffer.data(), buffer.size(), 0)) > 0;) {
      send_all(server, buffer.data(), static_cast<std::size_t>(size));
    }
    ::shutdown(server, SHUT_RDWR);
  });
  threads_.emplace_back([this, client, server] { answer(server, client); });
}

void SlowLine::answer(int server, int client) {
  std::vector<char> buffer(1 << 16);
  std::size_t passed = 0;
  auto due = std::chrono::steady_clock::now();
  for (ssize_t size = 0; (size = ::recv(server, buffer.data(), buffer.size(), 0)) > 0;) {
    passed += static_cast<std::size_t>(size);
    if (passed > options_.stall_after) {
      continue;  // taken and kept
    }
    const std::chrono::duration<double> takes(static_cast<double>(size) /
                                              static_cast<double>(options_.bytes_per_second));
    // What was slept too long is made good; only a line that was idle starts anew.
    due = std::max(due, std::chrono::steady_clock::now() - 1s) +
          std::chrono::duration_cast<std::chrono::steady_clock::duration>(takes);
    std::this_thread::sleep_until(due);
    send_all(client, buffer.data(), static_cast<std::size_t>(size));
  }
  if (passed <= options_.stall_after) {
    ::shutdown(client, SHUT_RDWR);
  }
}

}  // namespace promptcached::kv
