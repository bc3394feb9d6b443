#include "core/kv/kv_record.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace promptcached::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian, and written as they lie");

constexpr std::array<char, 8> kMagic = {'P', 'C', 'K', 'V', 'R', 'E', 'C', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kPage = 4096;
constexpr double kNoTtl = -1;

// The header's first bytes. The planes' table follows, then the checksum of both.
struct FixedFields {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t planes;
  std::array<std::uint8_t, 32> model;
  std::array<std::uint8_t, 32> key;
  std::int32_t layers;
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::uint8_t format;
  std::uint8_t form;
  std::uint8_t compression;
  std::uint8_t pin;
  std::int32_t tokens;
  std::int32_t extra_tokens;
  std::int32_t priority;
  std::int32_t reserved;
  double recompute_seconds;
  double ttl_seconds;
  std::int64_t last_use_ms;  // since 1970
};
static_assert(std::is_trivially_copyable_v<FixedFields> && sizeof(FixedFields) == 136);

std::size_t table_end(std::size_t planes) { return sizeof(FixedFields) + planes * sizeof(RecordHeader::Plane); }

FixedFields fixed_fields(const RecordHeader& header) {
  FixedFields fields{};
  fields.magic = kMagic;
  fields.version = kVersion;
  fields.planes = static_cast<std::uint32_t>(header.planes.size());
  fields.model = header.identity.model;
  fields.key = header.key.bytes;
  fields.layers = header.identity.geometry.layers;
  fields.kv_heads = header.identity.geometry.kv_heads;
  fields.head_dim = header.identity.geometry.head_dim;
  fields.format = static_cast<std::uint8_t>(header.identity.geometry.format);
  fields.form = static_cast<std::uint8_t>(header.codec.form);
  fields.compression = static_cast<std::uint8_t>(header.codec.compression);
  fields.pin = header.retention.pin ? 1 : 0;
  fields.tokens = header.tokens;
  fields.extra_tokens = header.extra_tokens;
  fields.priority = header.retention.priority;
  fields.recompute_seconds = header.worth.recompute_seconds;
  fields.ttl_seconds = header.retention.ttl.has_value() ? header.retention.ttl->count() : kNoTtl;
  fields.last_use_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(header.last_use.time_since_epoch()).count();
  return fields;
}

// Of fields whose checksum is right; only what a program may have written wrongly is left to be checked.
std::optional<RecordHeader> header_of(const FixedFields& fields) {
  if (fields.form > static_cast<std::uint8_t>(KvCodec::Form::kInt8) ||
      fields.compression > static_cast<std::uint8_t>(KvCodec::Compression::kLz4) || fields.tokens < 0 ||
      fields.extra_tokens < 0) {
    return std::nullopt;
  }
  RecordHeader header;
  header.identity.model = fields.model;
  header.identity.geometry = {fields.layers, fields.kv_heads, fields.head_dim,
                              static_cast<kernels::KvFormat>(fields.format)};
  header.key.bytes = fields.key;
  header.tokens = fields.tokens;
  header.extra_tokens = fields.extra_tokens;
  header.codec = {static_cast<KvCodec::Form>(fields.form), static_cast<KvCodec::Compression>(fields.compression)};
  header.worth.recompute_seconds = fields.recompute_seconds;
  header.last_use = RecordHeader::Time(std::chrono::milliseconds(fields.last_use_ms));
  header.retention.pin = fields.pin != 0;
  header.retention.priority = fields.priority;
  if (fields.ttl_seconds >= 0) {
    header.retention.ttl = std::chrono::duration<double>(fields.ttl_seconds);
  }
  return header;
}

}  // namespace

std::uint64_t RecordHeader::payload_bytes() const {
  return std::accumulate(planes.begin(), planes.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Plane& plane) { return sum + plane.bytes; });
}

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::size_t record_header_bytes(std::int32_t planes) {
  const std::size_t bytes = table_end(static_cast<std::size_t>(planes)) + sizeof(std::uint64_t);
  return (bytes + kPage - 1) / kPage * kPage;
}

std::vector<std::byte> write_record_header(const RecordHeader& header) {
  std::vector<std::byte> bytes(record_header_bytes(static_cast<std::int32_t>(header.planes.size())));
  const FixedFields fields = fixed_fields(header);
  const std::size_t end = table_end(header.planes.size());
  std::memcpy(bytes.data(), &fields, sizeof fields);
  std::memcpy(bytes.data() + sizeof fields, header.planes.data(), end - sizeof fields);
  const std::uint64_t sum = checksum(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
  return bytes;
}

HeaderOrFault read_record_header(std::span<const std::byte> bytes, const RecordIdentity& identity) {
  FixedFields fields{};
  if (bytes.size() < sizeof fields) {
    return {std::nullopt, RecordFault::kTruncated};
  }
  std::memcpy(&fields, bytes.data(), sizeof fields);
  if (fields.magic != kMagic) {
    return {std::nullopt, RecordFault::kDamaged};
  }
  if (fields.version != kVersion) {
    return {std::nullopt, RecordFault::kVersion};
  }
  const std::size_t end = table_end(fields.planes);
  if (bytes.size() < end + sizeof(std::uint64_t)) {
    return {std::nullopt, RecordFault::kTruncated};
  }
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + end, sizeof sum);
  std::optional<RecordHeader> header = header_of(fields);
  if (sum != checksum(bytes.first(end)) || !header.has_value()) {
    return {std::nullopt, RecordFault::kDamaged};
  }
  if (header->identity != identity) {
    return {std::nullopt, RecordFault::kModel};
  }
  if (fields.planes != static_cast<std::uint32_t>(identity.geometry.planes())) {
    return {std::nullopt, RecordFault::kDamaged};
  }
  header->planes.resize(fields.planes);
  std::memcpy(header->planes.data(), bytes.data() + sizeof fields, end - sizeof fields);
  return {std::move(header), RecordFault::kDamaged};
}

std::string_view to_string(RecordFault fault) {
  switch (fault) {
    case RecordFault::kTruncated:
      return "cut short";
    case RecordFault::kDamaged:
      return "damaged";
    case RecordFault::kVersion:
      return "of another version";
    case RecordFault::kModel:
      return "for another model, KV dtype or geometry";
    case RecordFault::kKey:
      return "of another module than its name says";
  }
  return "damaged";
}

DeviceSource::DeviceSource(RecordHeader header, ModulePin pin, KvAllocator& memory)
    : header_(std::move(header)),
      pin_(std::move(pin)),
      memory_(memory),
      codec_(header_.codec, header_.identity.geometry, header_.total_tokens()) {
  header_.planes.assign(static_cast<std::size_t>(header_.identity.geometry.planes()), {});
}

std::size_t DeviceSource::max_payload_bytes() const { return codec_.max_encoded_bytes() * header_.planes.size(); }

std::span<const std::byte> DeviceSource::plane(std::int32_t index) {
  const std::byte* plane = pin_.kv().data + static_cast<std::size_t>(index) * codec_.plane_bytes();
  if (!memory_.on_host()) {
    staged_.resize(codec_.plane_bytes());
    memory_.copy_to_host(staged_.data(), plane, staged_.size());
    plane = staged_.data();
  }
  const std::span<const std::byte> encoded = codec_.encode(index, plane);
  header_.planes[static_cast<std::size_t>(index)] = {encoded.size(), checksum(encoded)};
  return encoded;
}

std::optional<RecordFault> DeviceSink::begin(const RecordHeader& header) {
  if (header.key != key_ || header.tokens != tokens_ || header.extra_tokens != extra_tokens_) {
    return RecordFault::kKey;
  }
  codec_.emplace(header.codec, identity_.geometry, header.total_tokens());
  const std::size_t longest = codec_->max_encoded_bytes();
  const bool fits = std::all_of(header.planes.begin(), header.planes.end(), [&](const RecordHeader::Plane& plane) {
    return codec_->copies() ? plane.bytes == codec_->plane_bytes() : plane.bytes <= longest;
  });
  planes_ = header.planes;
  worth_ = header.worth;
  return fits ? std::nullopt : std::optional(RecordFault::kDamaged);
}

std::byte* DeviceSink::direct(std::int32_t index) {
  const bool as_it_is = memory_.on_host() && codec_->copies();
  return as_it_is ? data_ + static_cast<std::size_t>(index) * codec_->plane_bytes() : nullptr;
}

std::optional<RecordFault> DeviceSink::arrived(std::int32_t index) {
  const std::byte* const plane = direct(index);
  assert(plane != nullptr);
  const bool is_right = checksum({plane, codec_->plane_bytes()}) == planes_[static_cast<std::size_t>(index)].checksum;
  return is_right ? std::nullopt : std::optional(RecordFault::kDamaged);
}

std::optional<RecordFault> DeviceSink::put(std::int32_t index, std::span<const std::byte> encoded) {
  const RecordHeader::Plane& plane = planes_[static_cast<std::size_t>(index)];
  if (encoded.size() != plane.bytes) {
    return RecordFault::kTruncated;
  }
  if (checksum(encoded) != plane.checksum) {
    return RecordFault::kDamaged;
  }
  std::byte* const target = data_ + static_cast<std::size_t>(index) * codec_->plane_bytes();
  if (memory_.on_host()) {
    return codec_->decode(index, encoded, target) ? std::nullopt : std::optional(RecordFault::kDamaged);
  }
  staged_.resize(codec_->plane_bytes());
  if (!codec_->decode(index, encoded, staged_.data())) {
    return RecordFault::kDamaged;
  }
  memory_.copy_from_host(target, staged_.data(), staged_.size());
  return std::nullopt;
}

}  // namespace promptcached::kv
