// A module's KV as the lower tiers hold it: a header that says what it is, then its planes.
//
// The same bytes on disk and in a remote store. Whatever was cut short, changed, or written by another version or for
// another model shows in the header or in a plane's checksum before any of it is used.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/kv/kv_codec.h"
#include "core/kv/kv_memory.h"
#include "core/kv/module_key.h"
#include "core/kv/module_pool.h"

namespace promptcached::kv {

// What all records of one server have in common: the model with its KV dtype (a digest), and the geometry.
struct RecordIdentity {
  std::array<std::uint8_t, 32> model{};
  KvGeometry geometry;
  friend bool operator==(const RecordIdentity&, const RecordIdentity&) = default;
};

struct RecordHeader {
  struct Plane {
    std::uint64_t bytes = 0;     // encoded
    std::uint64_t checksum = 0;  // XXH3 of those
  };
  using Time = std::chrono::system_clock::time_point;  // must mean the same after a restart

  RecordIdentity identity;
  ModuleKey key;
  std::int32_t tokens = 0;
  std::int32_t extra_tokens = 0;
  KvCodec codec;
  ModuleWorth worth;  // its frequency is not written down: uses of another run say little
  Time last_use;
  Retention retention;
  std::vector<Plane> planes;  // geometry.planes() of them

  std::int32_t total_tokens() const { return tokens + extra_tokens; }
  std::uint64_t payload_bytes() const;  // of all planes, which follow each other without gaps
  bool expired(Time now) const {
    return retention.ttl.has_value() && !retention.pin && now - last_use >= *retention.ttl;
  }
};

// Where the payload begins: the header's size, padded to whole pages so that the payload can be read past the cache.
std::size_t record_header_bytes(std::int32_t planes);
std::vector<std::byte> write_record_header(const RecordHeader& header);

enum class RecordFault {
  kTruncated,  // shorter than it says
  kDamaged,    // a checksum or a length does not fit
  kVersion,    // of another format
  kModel,      // for another model, KV dtype or geometry
  kKey,        // of another module than its name says
};
std::string_view to_string(RecordFault fault);

// Reads a header and holds it against what is expected. `bytes` may be longer than the header.
struct HeaderOrFault {
  std::optional<RecordHeader> header;
  RecordFault fault = RecordFault::kDamaged;  // when there is no header
};
HeaderOrFault read_record_header(std::span<const std::byte> bytes, const RecordIdentity& identity);

std::uint64_t checksum(std::span<const std::byte> bytes);

// Where a tier takes a record from: the device's memory, or another tier's.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // Its planes are filled in as plane() is called for each in turn, once.
  virtual const RecordHeader& header() const = 0;
  virtual std::size_t max_payload_bytes() const = 0;
  // Encoded; lasts until the next call.
  virtual std::span<const std::byte> plane(std::int32_t index) = 0;
  // All planes have been taken: what they came from is let go, though the header may still be asked for.
  virtual void release() {}
};

// Encodes what a pin holds on the device.
class DeviceSource final : public RecordSource {
 public:
  // `header` has no planes yet.
  DeviceSource(RecordHeader header, ModulePin pin, KvAllocator& memory);
  const RecordHeader& header() const override { return header_; }
  std::size_t max_payload_bytes() const override;
  std::span<const std::byte> plane(std::int32_t index) override;
  void release() override { pin_.release(); }

 private:
  RecordHeader header_;
  ModulePin pin_;
  KvAllocator& memory_;
  PlaneCodec codec_;
  std::vector<std::byte> staged_;  // a plane, where the processor cannot read the device's memory
};

// The device memory that a tier fills.
class DeviceSink final {
 public:
  DeviceSink(std::byte* data, const RecordIdentity& identity, const ModuleKey& key, std::int32_t tokens,
             std::int32_t extra_tokens, KvAllocator& memory)
      : data_(data), identity_(identity), key_(key), tokens_(tokens), extra_tokens_(extra_tokens), memory_(memory) {}

  // Whether this is the record that is awaited; nullopt: it is. Must come before what follows.
  std::optional<RecordFault> begin(const RecordHeader& header);
  // Where plane `index`, and those behind it, can be read to as they are; nullptr when they must be decoded.
  std::byte* direct(std::int32_t index);
  // The plane is there, read to direct(index). Checks it.
  std::optional<RecordFault> arrived(std::int32_t index);
  // Checks and decodes a plane.
  std::optional<RecordFault> put(std::int32_t index, std::span<const std::byte> encoded);

  const ModuleWorth& worth() const { return worth_; }  // after begin()
  const RecordIdentity& identity() const { return identity_; }
  const ModuleKey& key() const { return key_; }
  std::size_t bytes() const { return identity_.geometry.bytes(std::int64_t{tokens_} + extra_tokens_); }

 private:
  std::byte* data_;
  const RecordIdentity& identity_;
  ModuleKey key_;
  std::int32_t tokens_;
  std::int32_t extra_tokens_;
  KvAllocator& memory_;
  std::optional<PlaneCodec> codec_;
  std::vector<RecordHeader::Plane> planes_;
  ModuleWorth worth_;
  std::vector<std::byte> staged_;
};

}  // namespace promptcached::kv
