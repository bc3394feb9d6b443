// Matrix products with weights in 8 bits, for any number of rows.
//
// Weights are whole numbers from -127 to 127, 32 of which (along a row of the matrix) share a scale. Inputs are rounded
// to 16 bits, 32 at a time as well, so that products of 32 sum up exactly in 32 bits; those sums are added in fp32, in
// order. An output therefore depends on its own row alone: one row computed by itself and among a thousand give the
// same bits, whatever the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace promptcached::kernels {

inline constexpr std::int64_t kPanelOutputs = 16;  // outputs that are computed side by side
inline constexpr std::int64_t kGroupInputs = 32;   // weights that share a scale

// Inputs as they are stored: padded with zeros to whole groups.
constexpr std::int64_t padded_inputs(std::int64_t in) { return (in + kGroupInputs - 1) / kGroupInputs * kGroupInputs; }
constexpr std::int64_t groups_of(std::int64_t in) { return padded_inputs(in) / kGroupInputs; }
constexpr std::int64_t panels_of(std::int64_t out) { return (out + kPanelOutputs - 1) / kPanelOutputs; }

// A group of one panel: its weights in 8 bits, and a scale of 16 for each output.
inline constexpr std::int64_t kGroupWeights = kPanelOutputs * kGroupInputs;
inline constexpr std::int64_t kGroupBytes = kGroupWeights + kPanelOutputs * 2;
constexpr std::int64_t panel_bytes(std::int64_t in) { return groups_of(in) * kGroupBytes; }

// A matrix [out, in]. Its bytes are one stream, read from front to back: for each panel of 16 outputs, for each group
// of 32 inputs, the weights [16 (pair of inputs), 16 (output), 2 (input)] as int8, then the 16 outputs' scales as bf16.
struct Int8Matrix {
  std::int64_t out = 0;
  std::int64_t in = 0;
  const std::byte* data = nullptr;  // int8_bytes(out, in) bytes, aligned to 64
};

std::size_t int8_bytes(std::int64_t out, std::int64_t in);

// Quantises panels `first_panel` to `last_panel` - 1 of a matrix.
//   weights: [out, in] fp32, from the first output of `first_panel` on, rows `stride` apart
//   data: the whole matrix's bytes
void quantize_panels(const float* weights, std::int64_t stride, std::int64_t out, std::int64_t in,
                     std::int64_t first_panel, std::int64_t last_panel, std::byte* data);

// Output `row` of the matrix as the numbers that products with it use: [in] fp32.
void dequantize_row(const Int8Matrix& matrix, std::int64_t row, float* numbers);

// Inputs in 16 bits.
struct Int16Rows {
  std::int64_t rows = 0;
  const std::int16_t* numbers = nullptr;  // [rows, padded_inputs(in)], aligned to 4
  const float* scales = nullptr;          // [rows, groups_of(in)]
};

// One row: `numbers` [padded_inputs(in)], `scales` [groups_of(in)].
void quantize_row(const float* x, std::int64_t in, std::int16_t* numbers, float* scales);

// What becomes of a product.
enum class Store { kSet, kAdd };

// Outputs of panels `first_panel` to `last_panel` - 1: y = x * weight^T + bias, or y += the same.
void multiply(const Int8Matrix& matrix, const Int16Rows& x, std::int64_t first_panel, std::int64_t last_panel,
              const float* bias,  // [out], or nullptr
              Store store,
              float* y,  // [rows, out], rows y_stride apart
              std::int64_t y_stride);

}  // namespace promptcached::kernels
