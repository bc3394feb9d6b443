// ShutdownSignals: the first SIGTERM or SIGINT asks for a graceful end, the second one ends the process at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/base/file_descriptor.h"

namespace promptcached::server {

class ShutdownSignals final {
 public:
  // To be made before any other thread: blocks both signals for this thread and all later ones, and takes them on a
  // thread of its own. Also ignores SIGPIPE. Until when_signalled() is called there is nothing to end gracefully, and
  // the first signal ends the process with status 0: loading a model cannot be interrupted.
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // From here on the first signal calls `first`, on the signals' thread, and wakes wait(). `first` must not block: the
  // second signal is waited for on the same thread.
  void when_signalled(std::function<void()> first);
  // The same as a first signal, from within.
  void request();
  // Until there is a first signal or request.
  void wait();

 private:
  void run();
  void on_signal(int signal);

  FileDescriptor signals_;  // a signalfd
  FileDescriptor stop_;     // an eventfd: the object is being destroyed
  std::mutex mutex_;        // guards all below; not held while `first_` runs
  std::condition_variable changed_;
  std::function<void()> first_;
  bool requested_ = false;
  std::thread thread_;
};

}  // namespace promptcached::server
