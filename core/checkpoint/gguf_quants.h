// The number formats of GGUF tensors, and their expansion to floats. No torch here.
//
// Source: ggml's block formats (ggml-common.h, and dequantize_row_* in ggml-quants.c). Results are those of the Python
// package `gguf` (gguf.quants.dequantize), bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/checkpoint/stored_tensors.h"

namespace promptcached::checkpoint {

// One number format: a row of a tensor is a whole number of blocks, each of `elements` consecutive numbers in `bytes`
// bytes. Formats that are not quantized have blocks of one element.
//
// Layouts, fields in file order, everything little-endian; f16 is half precision; nibbles: 16 bytes, byte i holds
// element i in its low and element i + 16 in its high four bits. x is a number, q its stored integer.
//   F32, F16, BF16   the number itself
//   Q4_0   32 in 18    f16 d, nibbles                              x = d * (q - 8)
//   Q4_1   32 in 20    f16 d, f16 m, nibbles                       x = d * q + m
//   Q5_0   32 in 22    f16 d, u32 fifth bits (bit i: element i), nibbles    x = d * (q - 16)
//   Q5_1   32 in 24    f16 d, f16 m, u32 fifth bits, nibbles       x = d * q + m
//   Q8_0   32 in 34    f16 d, 32 i8                                x = d * q
//   Q4_K  256 in 144   f16 d, f16 dmin, 12 bytes of scales and minima, 128 bytes of nibbles
//   Q5_K  256 in 176   f16 d, f16 dmin, 12 bytes of scales and minima, 32 bytes of fifth bits, 128 bytes of nibbles
//                      x = (d * scale) * q - (dmin * min); a scale and a min (6 bits each) for each 32 elements
//   Q6_K  256 in 210   128 bytes of low four bits, 64 of high two, 16 i8 scales, f16 d
//                      x = (d * scale) * (q - 32); a scale for each 16 elements
struct BlockFormat {
  std::uint32_t number;   // ggml's, as GGUF files say it
  std::string_view name;  // ggml's, which is the dtype of a StoredTensor
  std::size_t elements;
  std::size_t bytes;
  // Expands `count` blocks into count * elements floats. Neither pointer needs to be aligned beyond its type.
  void (*expand)(const std::byte* blocks, std::size_t count, float* out);
};

// All formats this version reads.
std::span<const BlockFormat> block_formats();
// nullptr when it is none of them.
const BlockFormat* find_block_format(std::uint32_t ggml_number);
const BlockFormat* find_block_format(std::string_view dtype);

// What ggml calls a tensor type, whether this version reads it or not: "IQ2_XXS"; the number in digits when it has no
// name.
std::string ggml_type_name(std::uint32_t ggml_number);

// Whether numbers of this dtype share scales, so that they must be expanded before they are used.
bool is_quantized(std::string_view dtype);

// Bytes of `elements` numbers, a multiple of the format's block. `dtype` is one of block_formats().
std::size_t stored_bytes(std::string_view dtype, std::size_t elements);

// Expands whole blocks into `out`, which has room for all their elements.
void dequantize(const BlockFormat& format, std::span<const std::byte> blocks, float* out);

// Expands `elements` numbers of a tensor, from the one with index `first_element` in its flattened shape, into `out`.
// Both are multiples of the format's block, as whole rows are, and lie within the tensor, whose dtype is one of
// block_formats(). Pieces may be expanded by several threads at once.
void dequantize(const StoredTensor& tensor, std::int64_t first_element, std::int64_t elements, float* out);

}  // namespace promptcached::checkpoint
