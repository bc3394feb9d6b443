// What the loops written with AVX2 share. Each of their functions carries PROMPTCACHED_AVX2, so that the rest of the
// program runs on processors without it; callers ask has_avx2() first.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#define PROMPTCACHED_AVX2 __attribute__((target("avx2,fma,f16c")))
#define PROMPTCACHED_HAS_AVX2_CODE 1

namespace promptcached::model {

inline bool has_avx2() {
  static const bool kFound =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("f16c") != 0;
  return kFound;
}

// Numbers in memory, eight of which are read as fp32.
struct Fp32 {
  float value;
};
struct Fp16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

PROMPTCACHED_AVX2 inline __m256 load8(const Fp32* p) { return _mm256_loadu_ps(&p->value); }

PROMPTCACHED_AVX2 inline __m256 load8(const Fp16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

PROMPTCACHED_AVX2 inline __m256 load8(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// The four sums of four vectors' elements, in order.
PROMPTCACHED_AVX2 inline __m128 sums(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// e^x to about 1e-7, for x <= 0; 0 below the smallest normal number.
PROMPTCACHED_AVX2 inline __m256 exp8(__m256 x) {
  const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0F), _CMP_LT_OQ);
  const __m256 turns =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // The remainder within half a power of two: ln 2 in two parts, so that nothing is lost.
  __m256 r = _mm256_fnmadd_ps(turns, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(turns, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 y = _mm256_set1_ps(1.9875691500e-4F);
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.3981999507e-3F));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(8.3334519073e-3F));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(4.1665795894e-2F));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(1.6666665459e-1F));
  y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(5.0000001201e-1F));
  y = _mm256_fmadd_ps(y, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0F)));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(turns), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(small, _mm256_mul_ps(y, _mm256_castsi256_ps(power)));
}

}  // namespace promptcached::model

#else

namespace promptcached::model {
inline bool has_avx2() { return false; }
}  // namespace promptcached::model

#endif
