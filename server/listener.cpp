#include "server/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "core/base/log.h"

namespace promptcached::server {
namespace {

// A burst of clients must not wait for the kernel's second attempt.
constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

AddressList resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const char* host = address.host.empty() ? nullptr : address.host.c_str();
  const int error = ::getaddrinfo(host, std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) {
    throw std::runtime_error("cannot listen on " + to_string(address) + ": " + ::gai_strerror(error));
  }
  return {list, ::freeaddrinfo};
}

// SO_REUSEADDR lets a restart take over a port with old connections in TIME_WAIT; SO_REUSEPORT is left off, because two
// servers on one port would share its clients without a word.
FileDescriptor open_socket(const addrinfo& candidate) {
  FileDescriptor socket(::socket(candidate.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), candidate.ai_addr, candidate.ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return {};
  }
  return socket;
}

int bound_port(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size);
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return ntohs(storage.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

std::string describe(const sockaddr_storage& storage, socklen_t size) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int error = ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, host, sizeof host, port,
                                  sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return error != 0 ? "unknown" : std::string(host) + ":" + port;
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  const auto bad = [&] {
    return make_error(ErrorCode::kInvalidField,
                      "'" + std::string(text) + "' is not HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return bad();
  }
  Address address;
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad();
  }
  address.host = host;
  const std::string_view port = text.substr(colon + 1);
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (parsed.ec != std::errc{} || parsed.ptr != port.data() + port.size() || address.port < 0 || address.port > 65535) {
    return bad();
  }
  return address;
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Listener::Listener(const Address& address) : stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const AddressList candidates = resolve(address);
  int reason = EADDRNOTAVAIL;
  for (const addrinfo* candidate = candidates.get(); candidate != nullptr && !socket_; candidate = candidate->ai_next) {
    socket_ = open_socket(*candidate);
    reason = errno;
  }
  if (!socket_ || !stop_) {
    throw std::runtime_error("cannot listen on " + to_string(address) + ": " + std::strerror(reason));
  }
  port_ = bound_port(socket_.get());
}

void Listener::stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
}

bool Listener::wait_for_client() {
  pollfd waiting[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (::poll(waiting, 2, -1) < 0 && errno == EINTR) {
  }
  return waiting[1].revents == 0;
}

// Out of descriptors or memory: what is there must be given back first, and until then poll() would return at once.
void Listener::pause() {
  log::warn("cannot accept connections: {}", std::strerror(errno));
  pollfd stopped{stop_.get(), POLLIN, 0};
  ::poll(&stopped, 1, /*ms=*/100);
}

std::optional<Accepted> Listener::accept() {
  while (wait_for_client()) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    FileDescriptor socket(
        ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&storage), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return Accepted{std::move(socket), describe(storage, size)};
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pause();
    }
    // Everything else is about one client that has gone already.
  }
  return std::nullopt;
}

}  // namespace promptcached::server
