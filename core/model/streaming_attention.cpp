#include "core/model/streaming_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/model/avx2.h"

namespace promptcached::model {

#ifdef PROMPTCACHED_HAS_AVX2_CODE

namespace {

constexpr std::int64_t kLargestHead = 256;
constexpr std::int64_t kKeyBlock = 64;  // keys whose scores are held at once
static_assert(kQueryBlock == 4, "scores of a key are one vector of four");

// The state of four queries between blocks of keys.
struct Softmax {
  alignas(32) float largest[kQueryBlock];
  alignas(32) float total[kQueryBlock];
  alignas(32) float out[kQueryBlock * kLargestHead];  // [queries, head_dim]
};

// scores[key] = the four queries' products with the key.
template <typename T>
PROMPTCACHED_AVX2 void score(const float* q, const T* k, std::int64_t keys, std::int64_t head_dim, float* scores) {
  std::int64_t key = 0;
  for (; key + 2 <= keys; key += 2) {
    const T* first = k + key * head_dim;
    const T* second = first + head_dim;
    __m256 a[kQueryBlock];
    __m256 b[kQueryBlock];
    for (std::int64_t i = 0; i < kQueryBlock; ++i) {
      a[i] = b[i] = _mm256_setzero_ps();
    }
    for (std::int64_t d = 0; d < head_dim; d += 8) {
      const __m256 x = load8(first + d);
      const __m256 y = load8(second + d);
      for (std::int64_t i = 0; i < kQueryBlock; ++i) {
        const __m256 query = _mm256_loadu_ps(q + i * head_dim + d);
        a[i] = _mm256_fmadd_ps(query, x, a[i]);
        b[i] = _mm256_fmadd_ps(query, y, b[i]);
      }
    }
    _mm_storeu_ps(scores + key * kQueryBlock, sums(a[0], a[1], a[2], a[3]));
    _mm_storeu_ps(scores + (key + 1) * kQueryBlock, sums(b[0], b[1], b[2], b[3]));
  }
  if (key < keys) {
    __m256 a[kQueryBlock];
    for (__m256& sum : a) {
      sum = _mm256_setzero_ps();
    }
    for (std::int64_t d = 0; d < head_dim; d += 8) {
      const __m256 x = load8(k + key * head_dim + d);
      for (std::int64_t i = 0; i < kQueryBlock; ++i) {
        a[i] = _mm256_fmadd_ps(_mm256_loadu_ps(q + i * head_dim + d), x, a[i]);
      }
    }
    _mm_storeu_ps(scores + key * kQueryBlock, sums(a[0], a[1], a[2], a[3]));
  }
}

// Turns scores into exponentials relative to the largest so far. Returns what the results so far must be multiplied by.
PROMPTCACHED_AVX2 __m128 exponentiate(std::int64_t keys, float* scores, Softmax* state) {
  const __m128 before = _mm_load_ps(state->largest);
  __m128 largest = before;
  for (std::int64_t key = 0; key < keys; ++key) {
    largest = _mm_max_ps(largest, _mm_loadu_ps(scores + key * kQueryBlock));
  }
  if (keys % 2 != 0) {  // two keys a vector: the last one's neighbour must count for nothing
    _mm_storeu_ps(scores + keys * kQueryBlock, _mm_set1_ps(-std::numeric_limits<float>::infinity()));
  }
  const __m256 both = _mm256_set_m128(largest, largest);
  __m256 total = _mm256_setzero_ps();
  for (std::int64_t key = 0; key < keys; key += 2) {
    const __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + key * kQueryBlock), both));
    _mm256_storeu_ps(scores + key * kQueryBlock, e);
    total = _mm256_add_ps(total, e);
  }
  const __m128 sum = _mm_add_ps(_mm256_castps256_ps128(total), _mm256_extractf128_ps(total, 1));
  const __m128 kept = _mm256_castps256_ps128(exp8(_mm256_castps128_ps256(_mm_sub_ps(before, largest))));
  _mm_store_ps(state->largest, largest);
  _mm_store_ps(state->total, _mm_fmadd_ps(_mm_load_ps(state->total), kept, sum));
  return kept;
}

// Adds the weighted values, kVectors times eight dimensions from `d` on.
template <int kVectors, typename T>
PROMPTCACHED_AVX2 void add_values(const float* weights, const T* v, std::int64_t keys, std::int64_t head_dim,
                                  std::int64_t d, const float* kept, float* out) {
  __m256 sum[kQueryBlock][kVectors];
  for (std::int64_t i = 0; i < kQueryBlock; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = _mm256_mul_ps(_mm256_set1_ps(kept[i]), _mm256_loadu_ps(out + i * head_dim + d + j * 8));
    }
  }
  for (std::int64_t key = 0; key < keys; ++key) {
    __m256 value[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      value[j] = load8(v + key * head_dim + d + static_cast<std::int64_t>(j) * 8);
    }
    for (std::int64_t i = 0; i < kQueryBlock; ++i) {
      const __m256 weight = _mm256_broadcast_ss(weights + key * kQueryBlock + i);
      for (int j = 0; j < kVectors; ++j) {
        sum[i][j] = _mm256_fmadd_ps(weight, value[j], sum[i][j]);
      }
    }
  }
  for (std::int64_t i = 0; i < kQueryBlock; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      _mm256_storeu_ps(out + i * head_dim + d + j * 8, sum[i][j]);
    }
  }
}

// Four queries over one block of keys.
template <typename T>
PROMPTCACHED_AVX2 void add_block(const float* q, const T* k, const T* v, std::int64_t keys, std::int64_t head_dim,
                                 Softmax* state) {
  alignas(32) float scores[kKeyBlock * kQueryBlock];
  score(q, k, keys, head_dim, scores);
  alignas(16) float kept[kQueryBlock];
  _mm_store_ps(kept, exponentiate(keys, scores, state));
  std::int64_t d = 0;
  for (; d + 16 <= head_dim; d += 16) {
    add_values<2>(scores, v, keys, head_dim, d, kept, state->out);
  }
  if (d < head_dim) {
    add_values<1>(scores, v, keys, head_dim, d, kept, state->out);
  }
}

template <typename T>
void stream(const KeyRun& run, std::int64_t head_dim, const float* q, float* out, float* lse) {
  Softmax state;
  std::fill_n(state.largest, kQueryBlock, -std::numeric_limits<float>::infinity());
  std::fill_n(state.total, kQueryBlock, 0.0F);
  std::fill_n(state.out, kQueryBlock * head_dim, 0.0F);
  const T* k = static_cast<const T*>(run.k);
  const T* v = static_cast<const T*>(run.v);
  for (std::int64_t first = 0; first < run.tokens; first += kKeyBlock) {
    const std::int64_t keys = std::min(kKeyBlock, run.tokens - first);
    add_block(q, k + first * head_dim, v + first * head_dim, keys, head_dim, &state);
  }
  for (std::int64_t i = 0; i < kQueryBlock; ++i) {
    const float inverse = 1.0F / state.total[i];
    for (std::int64_t d = 0; d < head_dim; ++d) {
      out[i * head_dim + d] = state.out[i * head_dim + d] * inverse;
    }
    lse[i] = state.largest[i] + std::log(state.total[i]);
  }
}

}  // namespace

bool can_stream(std::int64_t head_dim) { return has_avx2() && head_dim % 8 == 0 && head_dim <= kLargestHead; }

void stream_attention(const KeyRun& keys, std::int64_t head_dim, std::int64_t queries, const float* q, float* out,
                      float* lse) {
  for (std::int64_t i = 0; i < queries; i += kQueryBlock) {
    const float* block = q + i * head_dim;
    switch (keys.format) {
      case KvFormat::kFp32:
        stream<Fp32>(keys, head_dim, block, out + i * head_dim, lse + i);
        break;
      case KvFormat::kFp16:
        stream<Fp16>(keys, head_dim, block, out + i * head_dim, lse + i);
        break;
      case KvFormat::kBf16:
        stream<Bf16>(keys, head_dim, block, out + i * head_dim, lse + i);
        break;
    }
  }
}

#else

bool can_stream(std::int64_t) { return false; }
void stream_attention(const KeyRun&, std::int64_t, std::int64_t, const float*, float*, float*) {}

#endif

}  // namespace promptcached::model
