#include "core/model/few_rows_linear.h"

#include "core/model/avx2.h"

namespace promptcached::model {

#ifdef PROMPTCACHED_HAS_AVX2_CODE

namespace {

struct Product {
  std::int64_t in;
  const float* x;
  std::int64_t x_stride;
  const float* weight;
  bool add;
  float* y;
  std::int64_t y_stride;
};

// kRows rows from `row` on times kQuads times four outputs from `output` on. All running sums stay in registers, and
// there are enough of them to hide the latency of a multiply-add.
template <int kRows, int kQuads>
PROMPTCACHED_AVX2 void multiply_tile(const Product& p, std::int64_t row, std::int64_t output) {
  constexpr int kOutputs = kQuads * 4;
  const float* x = p.x + row * p.x_stride;
  const float* weight = p.weight + output * p.in;
  __m256 sum[kRows][kOutputs];
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < kOutputs; ++o) {
      sum[r][o] = _mm256_setzero_ps();
    }
  }
  const std::int64_t even = p.in / 8 * 8;
  for (std::int64_t i = 0; i < even; i += 8) {
    __m256 values[kRows];
    for (int r = 0; r < kRows; ++r) {
      values[r] = _mm256_loadu_ps(x + r * p.x_stride + i);
    }
    for (int o = 0; o < kOutputs; ++o) {
      const __m256 w = _mm256_loadu_ps(weight + o * p.in + i);
      for (int r = 0; r < kRows; ++r) {
        sum[r][o] = _mm256_fmadd_ps(values[r], w, sum[r][o]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int q = 0; q < kQuads; ++q) {
      const __m256* quad = sum[r] + q * 4;
      __m128 total = sums(quad[0], quad[1], quad[2], quad[3]);
      for (std::int64_t i = even; i < p.in; ++i) {
        const float* w = weight + q * 4 * p.in + i;
        const __m128 weights = _mm_set_ps(w[3 * p.in], w[2 * p.in], w[p.in], w[0]);
        total = _mm_fmadd_ps(_mm_set1_ps(x[r * p.x_stride + i]), weights, total);
      }
      float* y = p.y + (row + r) * p.y_stride + output + static_cast<std::int64_t>(q) * 4;
      _mm_storeu_ps(y, p.add ? _mm_add_ps(_mm_loadu_ps(y), total) : total);
    }
  }
}

// One output of one row: what is left at the end of the outputs.
void multiply_one(const Product& p, std::int64_t row, std::int64_t output) {
  float total = 0;
  for (std::int64_t i = 0; i < p.in; ++i) {
    total += p.x[row * p.x_stride + i] * p.weight[output * p.in + i];
  }
  float& y = p.y[row * p.y_stride + output];
  y = p.add ? y + total : total;
}

// All rows times four outputs, whose weights stay in the nearest cache meanwhile.
void multiply_quad(const Product& p, std::int64_t rows, std::int64_t output) {
  std::int64_t row = 0;
  for (; row + 3 <= rows; row += 3) {
    multiply_tile<3, 1>(p, row, output);
  }
  if (rows - row == 2) {
    multiply_tile<2, 1>(p, row, output);
  } else if (rows - row == 1) {
    multiply_tile<1, 1>(p, row, output);
  }
}

}  // namespace

bool can_multiply_few_rows() { return has_avx2(); }

void multiply_few_rows(std::int64_t rows, std::int64_t in, const float* x, std::int64_t x_stride, const float* weight,
                       std::int64_t begin, std::int64_t end, bool add, float* y, std::int64_t y_stride) {
  const Product product{in, x, x_stride, weight, add, y, y_stride};
  std::int64_t output = begin;
  if (rows == 1) {
    for (; output + 8 <= end; output += 8) {
      multiply_tile<1, 2>(product, 0, output);
    }
  }
  for (; output + 4 <= end; output += 4) {
    multiply_quad(product, rows, output);
  }
  for (; output < end; ++output) {
    for (std::int64_t row = 0; row < rows; ++row) {
      multiply_one(product, row, output);
    }
  }
}

#else

bool can_multiply_few_rows() { return false; }
void multiply_few_rows(std::int64_t, std::int64_t, const float*, std::int64_t, const float*, std::int64_t, std::int64_t,
                       bool, float*, std::int64_t) {}

#endif

}  // namespace promptcached::model
