// The decoder's steps between matrix products, one row of numbers at a time.
#pragma once

#include <cstdint>

#include "core/kernels/attention.h"

namespace promptcached::kernels {

// out = x / sqrt(mean(x²) + eps) * weight; `out` may be `x`.
void rms_norm(const float* x, const float* weight, std::int64_t count, float eps, float* out);

enum class Gate { kSilu, kGeluTanh };
// out = activation(gate) * up; `out` may be `gate`.
void activate_gate(Gate activation, const float* gate, const float* up, std::int64_t count, float* out);

// Turns one head: of its first 2 * half dimensions, pair i is (x[i], x[i + half]) and turns by the angle whose cosine
// and sine are given; the others are copied. All are multiplied by `factor`. `out` is not `x`.
void rotate(const float* x, const float* cos, const float* sin, std::int64_t half, std::int64_t head_dim, float factor,
            float* out);

// Rounds to the nearest number of the format.
void store_as(KvFormat format, const float* x, std::int64_t count, void* out);
// The numbers of a format, exactly.
void load_as(KvFormat format, const void* x, std::int64_t count, float* out);

}  // namespace promptcached::kernels
