// What the loops written with AVX2 share. Each of their functions carries PROMPTCACHED_AVX2, so that the rest of the
// program runs on processors without it; callers ask has_avx2() first.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#define PROMPTCACHED_AVX2 __attribute__((target("avx2,fma")))
#define PROMPTCACHED_HAS_AVX2_CODE 1

namespace promptcached::model {

inline bool has_avx2() {
  static const bool kFound = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return kFound;
}

// The four sums of four vectors' elements, in order.
PROMPTCACHED_AVX2 inline __m128 sums(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

}  // namespace promptcached::model

#else

namespace promptcached::model {
inline bool has_avx2() { return false; }
}  // namespace promptcached::model

#endif
