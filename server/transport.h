// Transport: the bytes of one client's connection, in the clear or through TLS.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "core/base/file_descriptor.h"

namespace promptcached::server {

enum class IoState { kDone, kWantsRead, kWantsWrite, kClosed };

struct IoResult {
  IoState state = IoState::kClosed;
  std::size_t bytes = 0;  // with kDone: at least 1
};

// Never blocks: kWantsRead and kWantsWrite say what to wait for before the same call is made again. kClosed: the client
// has closed, or the connection has failed.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int fd() const = 0;
  virtual IoResult read(char* data, std::size_t size) = 0;
  virtual IoResult write(const char* data, std::size_t size) = 0;
  // Tells the client that no more will be written.
  virtual void finish_writing() = 0;
};

std::unique_ptr<Transport> plain_transport(FileDescriptor socket);

// The server's certificate. Shared by all connections.
class TlsContext final {
 public:
  // PEM files. Throws std::runtime_error naming the file at fault.
  TlsContext(const std::filesystem::path& certificate_chain, const std::filesystem::path& private_key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // The handshake happens with the first read.
  std::unique_ptr<Transport> wrap(FileDescriptor socket) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace promptcached::server
