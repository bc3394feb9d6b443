// KvCodec: the form in which the tiers below the device hold KV, and the way there and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/kv/kv_memory.h"

namespace promptcached::kv {

struct KvCodec {
  // kRaw: the device's own numbers. kFp16 and kBf16 round to 16 bits. kInt8 holds K in bytes between the least and the
  // largest number of each head and channel, over 128 tokens, and V in bytes with one scale for each head and token:
  // K's large numbers stand in few channels, V's in none (KIVI, arXiv 2402.02750).
  enum class Form : std::uint8_t { kRaw = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3 };
  enum class Compression : std::uint8_t { kNone = 0, kZstd = 1, kLz4 = 2 };
  Form form = Form::kRaw;
  Compression compression = Compression::kNone;

  bool lossless() const { return form == Form::kRaw; }
  friend bool operator==(const KvCodec&, const KvCodec&) = default;
};

std::string_view to_string(KvCodec::Form form);
std::string_view to_string(KvCodec::Compression compression);

// Encodes and decodes the planes of one module. Has memory of its own to work in: not thread-safe, and what encode()
// gives lasts until the next call.
class PlaneCodec final {
 public:
  // A form that is the device's own format counts as kRaw.
  PlaneCodec(const KvCodec& codec, const KvGeometry& geometry, std::int32_t tokens);

  // Whether encoded planes are the device's bytes as they are.
  bool copies() const {
    return codec_.form == KvCodec::Form::kRaw && codec_.compression == KvCodec::Compression::kNone;
  }
  std::size_t plane_bytes() const { return geometry_.plane_bytes(tokens_); }
  // What no encoded plane is longer than.
  std::size_t max_encoded_bytes() const;

  // Plane `index` (even: K, odd: V), [kv_heads, tokens, head_dim] in the device's format. Points into `plane` where
  // nothing is changed.
  std::span<const std::byte> encode(std::int32_t index, const std::byte* plane);
  // The way back. False when `encoded` is not what encode() makes.
  bool decode(std::int32_t index, std::span<const std::byte> encoded, std::byte* plane);

 private:
  std::size_t form_bytes(std::int32_t index) const;  // of a plane before compression
  std::span<const std::byte> to_form(std::int32_t index, const std::byte* plane);
  void from_form(std::int32_t index, const std::byte* form, std::byte* plane);
  void quantise_k(const std::byte* plane, std::byte* out);
  void restore_k(const std::byte* form, std::byte* plane);
  void quantise_v(const std::byte* plane, std::byte* out);
  void restore_v(const std::byte* form, std::byte* plane);
  std::span<const std::byte> compress(std::span<const std::byte> form);
  bool decompress(std::span<const std::byte> encoded, std::span<std::byte> form) const;

  std::size_t row_bytes() const { return static_cast<std::size_t>(geometry_.head_dim) * geometry_.element_bytes(); }

  KvCodec codec_;
  KvGeometry geometry_;
  std::int32_t tokens_;
  std::vector<std::byte> form_;
  std::vector<std::byte> compressed_;
  std::vector<float> row_;
  std::vector<float> low_;
  std::vector<float> high_;
};

}  // namespace promptcached::kv
