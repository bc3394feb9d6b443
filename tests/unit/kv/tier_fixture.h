// What the tiers' tests share: records of made-up KV, a directory of their own, and a sink to load into.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "core/kv/kv_record.h"
#include "core/kv/tiers/tier.h"
#include "tests/temporary_directory.h"
#include "tests/unit/kv/pool_fixture.h"

namespace promptcached::kv {

inline RecordIdentity identity_of(const KvGeometry& geometry = kTinyGeometry, std::uint8_t model = 1) {
  RecordIdentity identity;
  identity.model.fill(model);
  identity.geometry = geometry;
  return identity;
}

inline std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = normal(random);
  }
  return numbers;
}

// A record in memory, as it might come from the device.
class MemorySource final : public RecordSource {
 public:
  MemorySource(int number, std::int32_t tokens, const RecordIdentity& identity = identity_of(), KvCodec codec = {})
      : data_(identity.geometry.bytes(tokens)), codec_(codec, identity.geometry, tokens) {
    const std::vector<float> numbers = random_floats(data_.size() / sizeof(float), static_cast<unsigned>(number));
    std::memcpy(data_.data(), numbers.data(), data_.size());
    header_.identity = identity;
    header_.key = key_of(number);
    header_.tokens = tokens;
    header_.codec = codec;
    header_.last_use = std::chrono::system_clock::now();
    header_.planes.assign(static_cast<std::size_t>(identity.geometry.planes()), {});
  }
  const RecordHeader& header() const override { return header_; }
  std::size_t max_payload_bytes() const override { return codec_.max_encoded_bytes() * header_.planes.size(); }
  std::span<const std::byte> plane(std::int32_t index) override {
    if (before_plane) {
      before_plane(index);
    }
    const std::span<const std::byte> encoded =
        codec_.encode(index, data_.data() + static_cast<std::size_t>(index) * codec_.plane_bytes());
    header_.planes[static_cast<std::size_t>(index)] = {encoded.size(), checksum(encoded)};
    return encoded;
  }

  RecordHeader& mutable_header() { return header_; }
  const std::vector<std::byte>& data() const { return data_; }
  std::function<void(std::int32_t)> before_plane;

 private:
  std::vector<std::byte> data_;
  PlaneCodec codec_;
  RecordHeader header_;
};

// Device memory for one module.
struct Target {
  explicit Target(const MemorySource& source) : Target(source.header(), source.data().size()) {}
  Target(const RecordHeader& header, std::size_t bytes)
      : memory(make_host_allocator()),
        identity(header.identity),
        data(bytes),
        sink(data.data(), identity, header.key, header.tokens, header.extra_tokens, *memory) {}
  std::unique_ptr<KvAllocator> memory;
  RecordIdentity identity;
  std::vector<std::byte> data;
  DeviceSink sink;
};

}  // namespace promptcached::kv
