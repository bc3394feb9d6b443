#include "server/connection_watcher.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/log.h"

namespace promptcached::server {
namespace {

constexpr std::uint64_t kStopId = 0;

}  // namespace

class ConnectionWatcher::Watch final : public api::DisconnectWatch {
 public:
  Watch(ConnectionWatcher& watcher, std::uint64_t id, int socket) : watcher_(watcher), id_(id), socket_(socket) {}
  ~Watch() override { watcher_.remove(id_, socket_); }

 private:
  ConnectionWatcher& watcher_;
  const std::uint64_t id_;
  const int socket_;
};

ConnectionWatcher::ConnectionWatcher()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStopId;
  if (!epoll_ || !stop_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0) {
    throw std::runtime_error(std::string("cannot watch connections: ") + std::strerror(errno));
  }
  thread_ = std::thread([this] { run(); });
}

ConnectionWatcher::~ConnectionWatcher() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
  assert(callbacks_.empty());
}

std::unique_ptr<api::DisconnectWatch> ConnectionWatcher::watch(int socket, std::function<void()> gone) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = next_id_++;
  callbacks_.emplace(id, std::move(gone));
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;  // EPOLLHUP and EPOLLERR are always reported
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    // The request runs on; a client that goes is then seen with the next write.
    log::warn("cannot watch a connection: {}", std::strerror(errno));
  }
  return std::make_unique<Watch>(*this, id, socket);
}

void ConnectionWatcher::remove(std::uint64_t id, int socket) {
  const std::lock_guard lock(mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
  callbacks_.erase(id);
}

void ConnectionWatcher::run() {
  epoll_event events[64];
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events, 64, -1);
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStopId) {
        return;
      }
      // Not there: removed after the event was reported.
      const auto found = callbacks_.find(events[i].data.u64);
      if (found != callbacks_.end() && found->second) {
        std::exchange(found->second, nullptr)();
      }
    }
  }
}

}  // namespace promptcached::server
