#include "server/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <stdexcept>
#include <string>
#include <utility>

namespace promptcached::server {
namespace {

IoResult result_of(ssize_t bytes, IoState when_blocked) {
  if (bytes > 0) {
    return {IoState::kDone, static_cast<std::size_t>(bytes)};
  }
  const bool blocked = bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return {blocked ? when_blocked : IoState::kClosed, 0};
}

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(FileDescriptor socket) : socket_(std::move(socket)) {}
  int fd() const override { return socket_.get(); }
  IoResult read(char* data, std::size_t size) override {
    return result_of(::recv(socket_.get(), data, size, 0), IoState::kWantsRead);
  }
  IoResult write(const char* data, std::size_t size) override {
    return result_of(::send(socket_.get(), data, size, MSG_NOSIGNAL), IoState::kWantsWrite);
  }
  void finish_writing() override { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  FileDescriptor socket_;
};

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(FileDescriptor socket, SSL_CTX* context) : socket_(std::move(socket)), ssl_(SSL_new(context)) {
    if (ssl_) {
      SSL_set_fd(ssl_.get(), socket_.get());
      SSL_set_accept_state(ssl_.get());  // SSL_read and SSL_write then do the handshake by themselves
    }
  }
  int fd() const override { return socket_.get(); }
  IoResult read(char* data, std::size_t size) override {
    return call([&] { return SSL_read(ssl_.get(), data, clamp(size)); });
  }
  IoResult write(const char* data, std::size_t size) override {
    return call([&] { return SSL_write(ssl_.get(), data, clamp(size)); });
  }
  void finish_writing() override {
    if (usable_) {
      ERR_clear_error();
      SSL_shutdown(ssl_.get());
    }
    ::shutdown(socket_.get(), SHUT_WR);
  }

 private:
  static int clamp(std::size_t size) { return static_cast<int>(std::min<std::size_t>(size, INT_MAX)); }

  template <typename Operation>
  IoResult call(Operation operation) {
    if (!ssl_ || !usable_) {
      return {};
    }
    ERR_clear_error();
    const int count = operation();
    if (count > 0) {
      return {IoState::kDone, static_cast<std::size_t>(count)};
    }
    switch (SSL_get_error(ssl_.get(), count)) {
      case SSL_ERROR_WANT_READ:
        return {IoState::kWantsRead, 0};
      case SSL_ERROR_WANT_WRITE:
        return {IoState::kWantsWrite, 0};
      case SSL_ERROR_ZERO_RETURN:
        return {};
      default:
        usable_ = false;  // after a fatal error SSL_shutdown must not be called
        return {};
    }
  }

  FileDescriptor socket_;
  std::unique_ptr<SSL, SslDeleter> ssl_;
  bool usable_ = true;
};

std::string openssl_reason() {
  const char* reason = ERR_reason_error_string(ERR_get_error());
  return reason == nullptr ? "unknown error" : reason;
}

}  // namespace

std::unique_ptr<Transport> plain_transport(FileDescriptor socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

struct TlsContext::Impl {
  SSL_CTX* context = nullptr;
  ~Impl() { SSL_CTX_free(context); }
};

TlsContext::TlsContext(const std::filesystem::path& certificate_chain, const std::filesystem::path& private_key)
    : impl_(std::make_unique<Impl>()) {
  ERR_clear_error();
  impl_->context = SSL_CTX_new(TLS_server_method());
  if (impl_->context == nullptr) {
    throw std::runtime_error("cannot set up TLS: " + openssl_reason());
  }
  SSL_CTX_set_min_proto_version(impl_->context, TLS1_2_VERSION);
  // A partial write may be repeated from another buffer: the output buffer grows between calls.
  SSL_CTX_set_mode(impl_->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_use_certificate_chain_file(impl_->context, certificate_chain.c_str()) != 1) {
    throw std::runtime_error("cannot use the TLS certificate " + certificate_chain.string() + ": " + openssl_reason());
  }
  if (SSL_CTX_use_PrivateKey_file(impl_->context, private_key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(impl_->context) != 1) {
    throw std::runtime_error("cannot use the TLS key " + private_key.string() + ": " + openssl_reason());
  }
}

TlsContext::~TlsContext() = default;

std::unique_ptr<Transport> TlsContext::wrap(FileDescriptor socket) const {
  return std::make_unique<TlsTransport>(std::move(socket), impl_->context);
}

}  // namespace promptcached::server
