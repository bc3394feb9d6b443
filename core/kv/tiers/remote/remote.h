// C interface of the promptcached_remote crate (Rust): values by name in Redis, Valkey or S3-compatible storage.
//
// Whatever comes back as PcRemoteBytes is owned by the caller and given back with pc_remote_bytes_free(). A function
// that does not answer kPcRemoteOk (or kPcRemoteAbsent) sets `*message` to a text in UTF-8 without passwords or keys.
// Any number of threads may use one store at the same time; calls block. A Rust panic never crosses this line.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct PcRemoteStore;

enum PcRemoteStatus : int {
  kPcRemoteOk = 0,
  kPcRemoteBadUri = 1,
  kPcRemoteTimeout = 2,
  kPcRemoteFailed = 3,  // anything else: refused, cut off, a password that is wrong, a bucket that is not there
  kPcRemoteAbsent = 4   // there is no value of that name; `*message` is not set
};

struct PcRemoteBytes {
  std::byte* data;  // null when `size` is 0
  std::size_t size;
};

void pc_remote_bytes_free(PcRemoteBytes bytes);

// Reads the URI and the environment; connects to nothing yet.
PcRemoteStatus pc_remote_open(const char* uri, std::size_t size, std::uint64_t timeout_ms, std::uint32_t max_concurrent,
                              PcRemoteStore** store, PcRemoteBytes* message);
void pc_remote_free(PcRemoteStore* store);

// The URI without what is secret in it.
PcRemoteBytes pc_remote_describe(const PcRemoteStore* store);

PcRemoteStatus pc_remote_read(const PcRemoteStore* store, const char* name, std::size_t size, PcRemoteBytes* value,
                              PcRemoteBytes* message);
PcRemoteStatus pc_remote_write(const PcRemoteStore* store, const char* name, std::size_t size, const std::byte* value,
                               std::size_t value_size, PcRemoteBytes* message);
PcRemoteStatus pc_remote_remove(const PcRemoteStore* store, const char* name, std::size_t size, PcRemoteBytes* message);

}  // extern "C"
