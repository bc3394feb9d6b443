#include "server/shutdown.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/log.h"

namespace promptcached::server {

ShutdownSignals::ShutdownSignals() {
  std::signal(SIGPIPE, SIG_IGN);  // a client that has gone is an error of write(), not of the process
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that may not grow any more
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_ || !stop_) {
    throw std::runtime_error(std::string("cannot wait for signals: ") + std::strerror(errno));
  }
  thread_ = std::thread([this] { run(); });
}

ShutdownSignals::~ShutdownSignals() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void ShutdownSignals::when_signalled(std::function<void()> first) {
  const std::lock_guard lock(mutex_);
  first_ = std::move(first);
}

void ShutdownSignals::request() {
  std::function<void()> first;
  {
    const std::lock_guard lock(mutex_);
    if (requested_) {
      return;
    }
    requested_ = true;
    first = first_;
  }
  if (first) {
    first();
  }
  changed_.notify_all();
}

void ShutdownSignals::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return requested_; });
}

void ShutdownSignals::run() {
  for (;;) {
    pollfd waiting[] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno == EINTR) {
      continue;
    }
    if (waiting[1].revents != 0) {
      return;
    }
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      on_signal(static_cast<int>(info.ssi_signo));
    }
  }
}

void ShutdownSignals::on_signal(int signal) {
  bool first = false;
  bool graceful = false;
  {
    const std::lock_guard lock(mutex_);
    first = !requested_;
    graceful = first_ != nullptr;
  }
  const char* name = signal == SIGTERM ? "SIGTERM" : "SIGINT";
  if (first && graceful) {
    log::info("{}: shutting down", name);
    request();
    return;
  }
  if (first) {
    log::info("{}: stopped before anything was served", name);
    std::_Exit(0);
  }
  log::warn("second signal ({}): leaving at once", name);
  std::_Exit(128 + signal);
}

}  // namespace promptcached::server
