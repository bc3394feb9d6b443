// Listener: a listening TCP socket that can be told to stop.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/file_descriptor.h"
#include "core/base/status.h"

namespace promptcached::server {

struct Address {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
};

// "HOST:PORT", "[::1]:8080", ":8080" (all interfaces). Error kInvalidField.
Result<Address> parse_address(std::string_view text);
std::string to_string(const Address& address);

struct Accepted {
  FileDescriptor socket;       // non-blocking, without delays for small packets
  std::string remote_address;  // "127.0.0.1:53122"
};

class Listener final {
 public:
  // Throws std::runtime_error, in words for whoever starts the server: "cannot listen on …: Address already in use".
  explicit Listener(const Address& address);

  int port() const { return port_; }
  // The next client; nullopt once stop() has been called. From one thread.
  std::optional<Accepted> accept();
  // From any thread, any number of times. Connections that wait to be accepted are refused by the kernel.
  void stop();

 private:
  bool wait_for_client();
  void pause();

  FileDescriptor socket_;
  FileDescriptor stop_;  // an eventfd: readable once stopped
  int port_ = 0;
};

}  // namespace promptcached::server
