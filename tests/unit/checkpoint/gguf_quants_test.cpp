// Every number format against the Python package `gguf`, bit for bit. See tests/tools/make_gguf.py.
#include "core/checkpoint/gguf_quants.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/checkpoint/gguf.h"
#include "core/checkpoint/safetensors.h"
#include "tests/catch.h"

namespace promptcached::checkpoint {
namespace {

const std::string kData = PROMPTCACHED_SOURCE_DIR "/tests/data/gguf/";

std::vector<std::uint32_t> bits_of(const float* numbers, std::size_t count) {
  std::vector<std::uint32_t> bits(count);
  std::memcpy(bits.data(), numbers, count * sizeof(float));
  return bits;
}

std::vector<std::uint32_t> bits_of(const StoredTensor& tensor) {
  std::vector<std::uint32_t> bits(tensor.bytes.size() / sizeof(float));
  std::memcpy(bits.data(), tensor.bytes.data(), tensor.bytes.size());
  return bits;
}

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return lower;
}

}  // namespace

TEST_CASE("Each format expands to the reference's floats, bit for bit", "[checkpoint][gguf]") {
  const auto file = GgufFile::open(kData + "quants.gguf");
  const StoredTensors expected = read_safetensors_file(kData + "quants.safetensors");
  CHECK(file->tensors().all().size() == block_formats().size());
  for (const BlockFormat& format : block_formats()) {
    INFO(format.name);
    const StoredTensor* tensor = file->tensors().find(lower_case(format.name));
    const StoredTensor* reference = expected.find(lower_case(format.name));
    REQUIRE(tensor != nullptr);
    REQUIRE(reference != nullptr);
    CHECK(tensor->dtype == format.name);
    CHECK(tensor->shape == reference->shape);
    const std::int64_t rows = tensor->shape[0];
    const std::int64_t columns = tensor->shape[1];
    const auto elements = static_cast<std::size_t>(rows * columns);
    CHECK(tensor->bytes.size() == stored_bytes(tensor->dtype, elements));

    std::vector<float> whole(elements);
    dequantize(format, tensor->bytes, whole.data());
    CHECK(bits_of(whole.data(), elements) == bits_of(*reference));

    // The same in pieces, last first, and nothing beyond a piece's end.
    std::vector<float> pieces(elements + 1, -7.0F);
    for (std::int64_t row = rows - 1; row >= 0; --row) {
      pieces[(row + 1) * columns] = -7.0F;
      dequantize(*tensor, row * columns, columns, pieces.data() + row * columns);
      CHECK(pieces[(row + 1) * columns] == -7.0F);
      if (row + 1 < rows) {
        pieces[(row + 1) * columns] = whole[(row + 1) * columns];
      }
    }
    CHECK(bits_of(pieces.data(), elements) == bits_of(*reference));
  }
}

TEST_CASE("Every half-precision number expands exactly", "[checkpoint][gguf]") {
  const BlockFormat* format = find_block_format("F16");
  REQUIRE(format != nullptr);
  std::vector<std::uint16_t> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  std::vector<float> floats(halves.size());
  dequantize(*format, std::as_bytes(std::span(halves)), floats.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10U & 31U);
    const int mantissa = static_cast<int>(i & 1023U);
    float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                   : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
    if (exponent == 31) {
      expected = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    }
    const bool same = std::isnan(expected) ? std::isnan(floats[i]) : std::fabs(floats[i]) == expected;
    wrong += same && std::signbit(floats[i]) == (i >= 0x8000) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("Formats are known by name and by number", "[checkpoint][gguf]") {
  for (const BlockFormat& format : block_formats()) {
    INFO(format.name);
    CHECK(find_block_format(format.name) == &format);
    CHECK(find_block_format(format.number) == &format);
    CHECK(ggml_type_name(format.number) == format.name);
    CHECK(is_quantized(format.name) == (format.name[0] == 'Q'));
  }
  CHECK(find_block_format("IQ2_XXS") == nullptr);
  CHECK(find_block_format(16) == nullptr);
  CHECK(ggml_type_name(16) == "IQ2_XXS");
  CHECK(ggml_type_name(39) == "MXFP4");
  CHECK(ggml_type_name(4096) == "4096");
  CHECK(!is_quantized("I64"));
  CHECK(stored_bytes("Q4_K", 512) == 288);
  CHECK(stored_bytes("BF16", 3) == 6);
}

}  // namespace promptcached::checkpoint
