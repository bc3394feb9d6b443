// Matrix products of a few rows, as in decoding: bound by reading the weights, which this does once, straight through.
// No torch here.
#pragma once

#include <cstdint>

namespace promptcached::model {

// Rows up to which this beats a general matrix product.
inline constexpr std::int64_t kFewRows = 128;

// Whether this processor can be served.
bool can_multiply_few_rows();

// Outputs `begin` to `end` - 1 of y = x * weight^T, for any rows > 0. With `add` set, they are added to y
// instead.
void multiply_few_rows(std::int64_t rows, std::int64_t in,
                       const float* x,  // [rows, in], rows x_stride apart
                       std::int64_t x_stride,
                       const float* weight,  // [out, in]
                       std::int64_t begin, std::int64_t end, bool add,
                       float* y,  // [rows, out], rows y_stride apart
                       std::int64_t y_stride);

}  // namespace promptcached::model
