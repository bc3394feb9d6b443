#include "core/kv/kv_codec.h"

#include <cmath>
#include <cstring>

#include "core/kernels/rows.h"
#include "tests/catch.h"
#include "tests/unit/kv/tier_fixture.h"

namespace promptcached::kv {
namespace {

constexpr std::int32_t kTokens = 300;  // more than two groups of scales

KvGeometry geometry(kernels::KvFormat format) { return {.layers = 1, .kv_heads = 2, .head_dim = 40, .format = format}; }

std::vector<std::byte> plane_of(const KvGeometry& shape, const std::vector<float>& numbers) {
  std::vector<std::byte> plane(shape.plane_bytes(kTokens));
  kernels::store_as(shape.format, numbers.data(), static_cast<std::int64_t>(numbers.size()), plane.data());
  return plane;
}

std::vector<float> numbers_of(const KvGeometry& shape, const std::vector<std::byte>& plane) {
  std::vector<float> numbers(plane.size() / shape.element_bytes());
  kernels::load_as(shape.format, plane.data(), static_cast<std::int64_t>(numbers.size()), numbers.data());
  return numbers;
}

const std::vector<KvCodec::Compression> kCompressions = {KvCodec::Compression::kNone, KvCodec::Compression::kZstd,
                                                         KvCodec::Compression::kLz4};

TEST_CASE("raw and a form that is the device's own give back every bit", "[kv]") {
  for (const kernels::KvFormat format :
       {kernels::KvFormat::kFp32, kernels::KvFormat::kFp16, kernels::KvFormat::kBf16}) {
    const KvGeometry shape = geometry(format);
    const auto plane = plane_of(shape, random_floats(2 * kTokens * 40, 1));
    for (const KvCodec::Compression compression : kCompressions) {
      for (const KvCodec::Form form : {KvCodec::Form::kRaw, KvCodec::Form::kFp16, KvCodec::Form::kBf16}) {
        const bool is_own = form == KvCodec::Form::kRaw ||
                            (form == KvCodec::Form::kFp16 && format == kernels::KvFormat::kFp16) ||
                            (form == KvCodec::Form::kBf16 && format == kernels::KvFormat::kBf16);
        if (!is_own) {
          continue;
        }
        PlaneCodec codec({form, compression}, shape, kTokens);
        CHECK(codec.copies() == (compression == KvCodec::Compression::kNone));
        const auto encoded = codec.encode(0, plane.data());
        CHECK(encoded.size() <= codec.max_encoded_bytes());
        const std::vector<std::byte> stored(encoded.begin(), encoded.end());
        std::vector<std::byte> back(plane.size());
        REQUIRE(codec.decode(0, stored, back.data()));
        CHECK(back == plane);
      }
    }
  }
}

TEST_CASE("16-bit forms of fp32 lose what rounding loses", "[kv]") {
  const KvGeometry shape = geometry(kernels::KvFormat::kFp32);
  const std::vector<float> numbers = random_floats(2 * kTokens * 40, 2);
  const auto plane = plane_of(shape, numbers);
  for (const auto& [form, relative] :
       {std::pair{KvCodec::Form::kFp16, 1.0F / 2048}, std::pair{KvCodec::Form::kBf16, 1.0F / 256}}) {
    PlaneCodec codec({form, KvCodec::Compression::kNone}, shape, kTokens);
    const auto encoded = codec.encode(1, plane.data());
    CHECK(encoded.size() * 2 == plane.size());
    std::vector<std::byte> back(plane.size());
    REQUIRE(codec.decode(1, std::vector<std::byte>(encoded.begin(), encoded.end()), back.data()));
    const std::vector<float> restored = numbers_of(shape, back);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      REQUIRE(std::abs(restored[i] - numbers[i]) <= relative * std::abs(numbers[i]) + 1e-7F);
    }
  }
}

// Half a step of 255 between the least and the largest of a channel (K), or of 254 of a token (V), and the format's own
// rounding.
TEST_CASE("int8 stays within half a step of its channel or token", "[kv]") {
  for (const kernels::KvFormat format : {kernels::KvFormat::kFp32, kernels::KvFormat::kFp16}) {
    const KvGeometry shape = geometry(format);
    std::vector<float> numbers = random_floats(2 * kTokens * 40, 3);
    for (std::size_t i = 0; i < numbers.size(); i += 40) {
      numbers[i + 7] = 80 + numbers[i + 7];  // K's large channel, which must not spoil the others
    }
    const auto plane = plane_of(shape, numbers);
    PlaneCodec codec({KvCodec::Form::kInt8, KvCodec::Compression::kZstd}, shape, kTokens);
    for (const std::int32_t index : {0, 1}) {
      const auto encoded = codec.encode(index, plane.data());
      std::vector<std::byte> back(plane.size());
      REQUIRE(codec.decode(index, std::vector<std::byte>(encoded.begin(), encoded.end()), back.data()));
      const std::vector<float> restored = numbers_of(shape, back);
      float worst_small_channel = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const float error = std::abs(restored[i] - numbers[i]);
        REQUIRE(error < (index == 0 ? 0.1F : 0.45F));
        worst_small_channel = i % 40 == 7 ? worst_small_channel : std::max(worst_small_channel, error);
      }
      CHECK(worst_small_channel < (index == 0 ? 0.05F : 0.45F));
    }
  }
}

TEST_CASE("int8 of equal numbers and of zeros is exact", "[kv]") {
  const KvGeometry shape = geometry(kernels::KvFormat::kFp32);
  for (const float number : {0.0F, 3.25F, -7.5F}) {
    const std::vector<float> numbers(2 * kTokens * 40, number);
    const auto plane = plane_of(shape, numbers);
    PlaneCodec codec({KvCodec::Form::kInt8, KvCodec::Compression::kNone}, shape, kTokens);
    for (const std::int32_t index : {0, 1}) {
      const auto encoded = codec.encode(index, plane.data());
      CHECK(encoded.size() * 3 < plane.size());
      std::vector<std::byte> back(plane.size());
      REQUIRE(codec.decode(index, std::vector<std::byte>(encoded.begin(), encoded.end()), back.data()));
      for (const float restored : numbers_of(shape, back)) {
        REQUIRE(std::abs(restored - number) < 1e-5F);
      }
    }
  }
}

TEST_CASE("what encode() did not make is refused", "[kv]") {
  const KvGeometry shape = geometry(kernels::KvFormat::kFp16);
  const auto plane = plane_of(shape, random_floats(2 * kTokens * 40, 4));
  for (const KvCodec::Form form : {KvCodec::Form::kRaw, KvCodec::Form::kInt8}) {
    for (const KvCodec::Compression compression : kCompressions) {
      PlaneCodec codec({form, compression}, shape, kTokens);
      const auto encoded = codec.encode(0, plane.data());
      std::vector<std::byte> stored(encoded.begin(), encoded.end());
      std::vector<std::byte> back(plane.size());
      CHECK_FALSE(codec.decode(0, std::span(stored).first(stored.size() - 1), back.data()));
      CHECK_FALSE(codec.decode(0, {}, back.data()));
      stored.push_back(std::byte{0});
      CHECK_FALSE(codec.decode(0, stored, back.data()));
    }
  }
}

}  // namespace
}  // namespace promptcached::kv
