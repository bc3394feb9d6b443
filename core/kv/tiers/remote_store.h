// RemoteStore: values by name in a store that several replicas share: Redis or Valkey (a single server or a cluster),
// or S3-compatible object storage.
//
//   redis://[user:password@]host[:port][/database][?prefix=promptcached:]      rediss:// with TLS
//   redis-cluster://[user:password@]host:port[,host:port...][?prefix=...]      rediss-cluster:// with TLS
//   s3://bucket[/prefix][?endpoint=http://host:port&region=...]
//
// Secrets need not be in the URI: REDIS_USERNAME and REDIS_PASSWORD, and for S3 AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL, are read from the environment (S3 also
// looks where AWS's tools look: profiles, and the machine's own role). Certificates are checked against the system's
// authorities, or those in the file that SSL_CERT_FILE names.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.h"

struct PcRemoteStore;  // the Rust library's (remote/remote.h)

namespace promptcached::kv {

// The bytes of a value, where the store's client put them. Move-only.
class RemoteValue final {
 public:
  std::span<const std::byte> bytes() const { return {data_.get(), data_.get_deleter().size}; }

 private:
  friend class RemoteStore;
  struct Free {
    std::size_t size = 0;
    void operator()(std::byte* data) const;
  };
  RemoteValue(std::byte* data, std::size_t size) : data_(data, Free{size}) {}

  std::unique_ptr<std::byte, Free> data_;
};

// Thread-safe; calls block. A store has `timeout` to answer, and then the time that the value takes at 16 MiB/s: what
// comes slower is sooner computed anew. Of more than `max_concurrent` calls the others wait, for `timeout` at most.
//
// A connection is made when it is needed, and made anew when it broke: a server that went away and came back is used
// again. Errors are kTimeout and kInternal; no message holds a password or a key.
class RemoteStore final {
 public:
  struct Options {
    std::string uri;
    std::chrono::milliseconds timeout{2000};
    std::int32_t max_concurrent = 4;
  };

  // kInvalidField with what to write instead when the URI is none. Connects to nothing: the server may be down.
  static Result<std::unique_ptr<RemoteStore>> open(const Options& options);

  // Nullopt: there is no value of that name. Names are letters, digits, '.', '_' and '-'.
  Result<std::optional<RemoteValue>> read(const std::string& name);
  // Whole values: a reader sees all of the old one or all of the new one.
  Status write(const std::string& name, std::span<const std::byte> value);
  // Success also when there was none.
  Status remove(const std::string& name);

  // For logs and /cache: the URI without what is secret in it.
  std::string describe() const;

 private:
  struct Close {
    void operator()(PcRemoteStore* store) const;
  };
  explicit RemoteStore(PcRemoteStore* store) : store_(store) {}

  std::unique_ptr<PcRemoteStore, Close> store_;
};

}  // namespace promptcached::kv
