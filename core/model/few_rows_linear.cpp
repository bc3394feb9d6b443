#include "core/model/few_rows_linear.h"

#include "core/model/avx2.h"

namespace promptcached::model {

#ifdef PROMPTCACHED_HAS_AVX2_CODE

namespace {

constexpr int kSums = 8;  // running sums at once: enough to hide the latency of a multiply-add

struct Product {
  std::int64_t in;
  const float* x;
  std::int64_t x_stride;
  const float* weight;
  bool add;
  float* y;
  std::int64_t y_stride;
};

PROMPTCACHED_AVX2 float sum_of(__m256 v) { return _mm_cvtss_f32(sums(v, v, v, v)); }

// kRows rows times kOutputs outputs from `output` on.
template <int kRows, int kOutputs>
PROMPTCACHED_AVX2 void multiply_block(const Product& p, std::int64_t output) {
  __m256 sum[kRows][kOutputs];
  for (int row = 0; row < kRows; ++row) {
    for (int o = 0; o < kOutputs; ++o) {
      sum[row][o] = _mm256_setzero_ps();
    }
  }
  const float* weight = p.weight + output * p.in;
  const std::int64_t even = p.in / 8 * 8;
  for (std::int64_t i = 0; i < even; i += 8) {
    __m256 x[kRows];
    for (int row = 0; row < kRows; ++row) {
      x[row] = _mm256_loadu_ps(p.x + row * p.x_stride + i);
    }
    for (int o = 0; o < kOutputs; ++o) {
      const __m256 w = _mm256_loadu_ps(weight + o * p.in + i);
      for (int row = 0; row < kRows; ++row) {
        sum[row][o] = _mm256_fmadd_ps(x[row], w, sum[row][o]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int o = 0; o < kOutputs; ++o) {
      float total = sum_of(sum[row][o]);
      for (std::int64_t i = even; i < p.in; ++i) {
        total += p.x[row * p.x_stride + i] * weight[o * p.in + i];
      }
      float* y = p.y + row * p.y_stride + output + o;
      *y = p.add ? *y + total : total;
    }
  }
}

template <int kRows>
void multiply(const Product& p, std::int64_t begin, std::int64_t end) {
  constexpr int kOutputs = kSums / kRows;
  std::int64_t output = begin;
  for (; output + kOutputs <= end; output += kOutputs) {
    multiply_block<kRows, kOutputs>(p, output);
  }
  for (; output < end; ++output) {
    multiply_block<kRows, 1>(p, output);
  }
}

}  // namespace

bool can_multiply_few_rows() { return has_avx2(); }

void multiply_few_rows(std::int64_t rows, std::int64_t in, const float* x, std::int64_t x_stride, const float* weight,
                       std::int64_t begin, std::int64_t end, bool add, float* y, std::int64_t y_stride) {
  const Product product{in, x, x_stride, weight, add, y, y_stride};
  switch (rows) {
    case 1:
      multiply<1>(product, begin, end);
      break;
    case 2:
      multiply<2>(product, begin, end);
      break;
    case 3:
      multiply<3>(product, begin, end);
      break;
    default:
      multiply<4>(product, begin, end);
      break;
  }
}

#else

bool can_multiply_few_rows() { return false; }
void multiply_few_rows(std::int64_t, std::int64_t, const float*, std::int64_t, const float*, std::int64_t, std::int64_t,
                       bool, float*, std::int64_t) {}

#endif

}  // namespace promptcached::model
