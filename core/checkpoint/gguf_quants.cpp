// Compiled with -ffp-contract=off (CMakeLists.txt): every product and sum here rounds on its own, in the order written.
#include "core/checkpoint/gguf_quants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace promptcached::checkpoint {
namespace {

constexpr std::size_t kSmallBlock = 32;  // elements
constexpr std::size_t kLargeBlock = 256;
constexpr std::size_t kScaleBytes = 12;  // of Q4_K and Q5_K

template <typename T>
T load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Exact. In integers but for one subtraction, so that no denormal is computed with: a thread may have them off. Chosen
// by masks, since compilers make branches of conditions here, and then no vectors.
float from_half(std::uint16_t half) {
  constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t magnitude = (half & 0x7FFFU) << 13U;
  // The greatest exponent (infinity or NaN) stays the greatest.
  const std::uint32_t is_special = 0U - static_cast<std::uint32_t>(magnitude >= (31U << 23U));
  const std::uint32_t normal = magnitude + kRebias + (is_special & kRebias);
  // A denormal half is a multiple of 2^-24: what its bits add to 2^-14 when they are put below its leading one.
  const auto denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + kRebias + (1U << 23U)) - 0x1p-14F);
  const std::uint32_t is_denormal = 0U - static_cast<std::uint32_t>(magnitude < (1U << 23U));
  return std::bit_cast<float>(sign | (is_denormal & denormal) | (~is_denormal & normal));
}

float load_half(const std::uint8_t* bytes) { return from_half(load<std::uint16_t>(bytes)); }

void expand_f32(const std::uint8_t* number, float* out) { *out = load<float>(number); }

void expand_f16(const std::uint8_t* number, float* out) { *out = load_half(number); }

void expand_bf16(const std::uint8_t* number, float* out) {
  *out = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(number)) << 16U);
}

void expand_q8_0(const std::uint8_t* block, float* __restrict out) {
  const float scale = load_half(block);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

void expand_q4_0(const std::uint8_t* block, float* __restrict out) {
  const float scale = load_half(block);
  for (std::size_t i = 0; i < kSmallBlock / 2; ++i) {
    const int pair = block[2 + i];
    out[i] = scale * static_cast<float>((pair & 15) - 8);
    out[i + kSmallBlock / 2] = scale * static_cast<float>((pair >> 4) - 8);
  }
}

void expand_q4_1(const std::uint8_t* block, float* __restrict out) {
  const float scale = load_half(block);
  const float min = load_half(block + 2);
  for (std::size_t i = 0; i < kSmallBlock / 2; ++i) {
    const int pair = block[4 + i];
    out[i] = scale * static_cast<float>(pair & 15) + min;
    out[i + kSmallBlock / 2] = scale * static_cast<float>(pair >> 4) + min;
  }
}

// The stored integers of Q5_0 and Q5_1: 4 bytes of fifth bits, then nibbles.
std::array<int, kSmallBlock> unpack_five_bits(const std::uint8_t* bytes) {
  const auto fifth_bits = load<std::uint32_t>(bytes);
  std::array<int, kSmallBlock> unpacked;
  for (std::size_t i = 0; i < kSmallBlock / 2; ++i) {
    const int pair = bytes[4 + i];
    unpacked[i] = (pair & 15) | ((fifth_bits & (1U << i)) != 0 ? 16 : 0);
    unpacked[i + kSmallBlock / 2] = (pair >> 4) | ((fifth_bits & (0x10000U << i)) != 0 ? 16 : 0);
  }
  return unpacked;
}

void expand_q5_0(const std::uint8_t* block, float* __restrict out) {
  const float scale = load_half(block);
  const auto unpacked = unpack_five_bits(block + 2);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    out[i] = scale * static_cast<float>(unpacked[i] - 16);
  }
}

void expand_q5_1(const std::uint8_t* block, float* __restrict out) {
  const float scale = load_half(block);
  const float min = load_half(block + 2);
  const auto unpacked = unpack_five_bits(block + 4);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    out[i] = scale * static_cast<float>(unpacked[i]) + min;
  }
}

struct Scales {
  float scale;
  float min;
};

// Scale and minimum of each 32 elements in a block of Q4_K or Q5_K, whose first bytes are d, dmin, and 12 bytes in
// which the first four of either have six bits of their own, and the last four are split: low four bits in the last
// bytes, high two at the top of the first ones.
std::array<Scales, 8> unpack_scales(const std::uint8_t* block) {
  const float d = load_half(block);
  const float dmin = load_half(block + 2);
  const std::uint8_t* packed = block + 4;
  std::array<Scales, 8> scales;
  for (std::size_t i = 0; i < 4; ++i) {
    const int split = packed[i + 8];
    scales[i] = {d * static_cast<float>(packed[i] & 63), dmin * static_cast<float>(packed[i + 4] & 63)};
    scales[i + 4] = {d * static_cast<float>((split & 15) | (packed[i] >> 6 << 4)),
                     dmin * static_cast<float>((split >> 4) | (packed[i + 4] >> 6 << 4))};
  }
  return scales;
}

// Each 32 bytes hold 32 elements in their low and the next 32 in their high four bits.
void expand_q4_k(const std::uint8_t* block, float* __restrict out) {
  const auto scales = unpack_scales(block);
  const std::uint8_t* nibbles = block + 4 + kScaleBytes;
  for (std::size_t pair = 0; pair < 4; ++pair, nibbles += 32, out += 64) {
    const Scales low = scales[2 * pair];
    const Scales high = scales[2 * pair + 1];
    for (std::size_t i = 0; i < 32; ++i) {
      out[i] = low.scale * static_cast<float>(nibbles[i] & 15) - low.min;
      out[i + 32] = high.scale * static_cast<float>(nibbles[i] >> 4) - high.min;
    }
  }
}

// As Q4_K; bit s of the i-th byte of fifth bits belongs to the i-th element of the s-th 32.
void expand_q5_k(const std::uint8_t* block, float* __restrict out) {
  const auto scales = unpack_scales(block);
  const std::uint8_t* fifth_bits = block + 4 + kScaleBytes;
  const std::uint8_t* nibbles = fifth_bits + 32;
  for (int pair = 0; pair < 4; ++pair, nibbles += 32, out += 64) {
    const Scales low = scales[2 * pair];
    const Scales high = scales[2 * pair + 1];
    for (std::size_t i = 0; i < 32; ++i) {
      const int bits = fifth_bits[i] >> (2 * pair);
      out[i] = low.scale * static_cast<float>((nibbles[i] & 15) | (bits & 1) << 4) - low.min;
      out[i + 32] = high.scale * static_cast<float>((nibbles[i] >> 4) | (bits & 2) << 3) - high.min;
    }
  }
}

// Each half of the block: 64 bytes hold 64 elements in their low and the next 64 in their high four bits; each two bits
// of 32 bytes are the high ones of 32 elements.
void expand_q6_k(const std::uint8_t* block, float* __restrict out) {
  const std::uint8_t* low_bits = block;
  const std::uint8_t* high_bits = block + 128;
  const std::uint8_t* scales = block + 192;
  const float d = load_half(block + 208);
  for (int half = 0; half < 2; ++half, low_bits += 64, high_bits += 32) {
    for (int quarter = 0; quarter < 4; ++quarter, scales += 2, out += 32) {
      const std::uint8_t* low = low_bits + 32 * (quarter % 2);
      const int low_shift = 4 * (quarter / 2);
      const int high_shift = 2 * quarter;
      for (std::size_t part = 0; part < 2; ++part) {
        const float scale = d * static_cast<float>(static_cast<std::int8_t>(scales[part]));
        for (std::size_t i = 16 * part; i < 16 * part + 16; ++i) {
          const int stored = (low[i] >> low_shift & 15) | (high_bits[i] >> high_shift & 3) << 4;
          out[i] = scale * static_cast<float>(stored - 32);
        }
      }
    }
  }
}

template <std::size_t kElements, std::size_t kBytes, void (*kExpand)(const std::uint8_t*, float*)>
void expand_blocks(const std::byte* blocks, std::size_t count, float* out) {
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks);
  for (std::size_t i = 0; i < count; ++i) {
    kExpand(block + i * kBytes, out + i * kElements);
  }
}

template <std::size_t kElements, std::size_t kBytes, void (*kExpand)(const std::uint8_t*, float*)>
constexpr BlockFormat format(std::uint32_t number, std::string_view name) {
  return {number, name, kElements, kBytes, &expand_blocks<kElements, kBytes, kExpand>};
}

constexpr std::array kFormats = {
    format<1, 4, expand_f32>(0, "F32"),
    format<1, 2, expand_f16>(1, "F16"),
    format<1, 2, expand_bf16>(30, "BF16"),
    format<kSmallBlock, 2 + 32, expand_q8_0>(8, "Q8_0"),
    format<kSmallBlock, 2 + 16, expand_q4_0>(2, "Q4_0"),
    format<kSmallBlock, 2 + 2 + 16, expand_q4_1>(3, "Q4_1"),
    format<kSmallBlock, 2 + 4 + 16, expand_q5_0>(6, "Q5_0"),
    format<kSmallBlock, 2 + 2 + 4 + 16, expand_q5_1>(7, "Q5_1"),
    format<kLargeBlock, 2 + 2 + kScaleBytes + 128, expand_q4_k>(12, "Q4_K"),
    format<kLargeBlock, 2 + 2 + kScaleBytes + 32 + 128, expand_q5_k>(13, "Q5_K"),
    format<kLargeBlock, 128 + 64 + 16 + 2, expand_q6_k>(14, "Q6_K"),
};

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }

const BlockFormat* find_block_format(std::uint32_t ggml_number) {
  const auto* found = std::find_if(kFormats.begin(), kFormats.end(),
                                   [&](const BlockFormat& format) { return format.number == ggml_number; });
  return found == kFormats.end() ? nullptr : found;
}

const BlockFormat* find_block_format(std::string_view dtype) {
  const auto* found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const BlockFormat& format) { return format.name == dtype; });
  return found == kFormats.end() ? nullptr : found;
}

std::string ggml_type_name(std::uint32_t ggml_number) {
  // enum ggml_type, with the names of what has been removed from it.
  static constexpr std::array<std::string_view, 43> kNames = {
      "F32",        "F16",        "Q4_0",       "Q4_1",  "Q4_2",     "Q4_3",     "Q5_0",     "Q5_1",    "Q8_0",
      "Q8_1",       "Q2_K",       "Q3_K",       "Q4_K",  "Q5_K",     "Q6_K",     "Q8_K",     "IQ2_XXS", "IQ2_XS",
      "IQ3_XXS",    "IQ1_S",      "IQ4_NL",     "IQ3_S", "IQ2_S",    "IQ4_XS",   "I8",       "I16",     "I32",
      "I64",        "F64",        "IQ1_M",      "BF16",  "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0",
      "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4", "NVFP4",    "Q1_0",     "Q2_0"};
  return ggml_number < kNames.size() ? std::string(kNames[ggml_number]) : std::to_string(ggml_number);
}

bool is_quantized(std::string_view dtype) {
  const BlockFormat* format = find_block_format(dtype);
  return format != nullptr && format->elements > 1;
}

std::size_t stored_bytes(std::string_view dtype, std::size_t elements) {
  const BlockFormat* format = find_block_format(dtype);
  assert(format != nullptr && elements % format->elements == 0);
  return elements / format->elements * format->bytes;
}

void dequantize(const BlockFormat& format, std::span<const std::byte> blocks, float* out) {
  assert(blocks.size() % format.bytes == 0);
  format.expand(blocks.data(), blocks.size() / format.bytes, out);
}

void dequantize(const StoredTensor& tensor, std::int64_t first_element, std::int64_t elements, float* out) {
  const BlockFormat* format = find_block_format(std::string_view(tensor.dtype));
  assert(format != nullptr && first_element >= 0 && elements >= 0);
  const std::size_t begin = stored_bytes(tensor.dtype, static_cast<std::size_t>(first_element));
  const std::size_t bytes = stored_bytes(tensor.dtype, static_cast<std::size_t>(elements));
  assert(begin <= tensor.bytes.size() && bytes <= tensor.bytes.size() - begin);
  dequantize(*format, tensor.bytes.subspan(begin, bytes), out);
}

}  // namespace promptcached::checkpoint
