// SPDX-License-Identifier: Apache-2.0
// The arithmetic peak of a tier: twelve or more independent chains of fused multiply-adds in registers. The empty asm
// hides from the compiler that the chains are alike.
#pragma once
#include <cstdint>

#include "kernels/context.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bantam {

using Peak = double (*)(int64_t steps);  // returns floating-point operations done

#if defined(__x86_64__)
inline volatile float g_sink;

[[gnu::target("avx2,fma")]] inline double peak_avx2(int64_t steps) {
  __m256 acc[12];
#pragma GCC unroll 12
  for (auto& a : acc) asm("" : "=x"(a) : "0"(_mm256_setzero_ps()));
  const __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
  for (int64_t k = 0; k < steps; ++k) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, y);
  }
  __m256 sum = acc[0];
#pragma GCC unroll 12
  for (auto& a : acc) sum = _mm256_add_ps(sum, a);
  g_sink = _mm256_cvtss_f32(sum);
  return static_cast<double>(steps) * 12 * 8 * 2;
}

[[gnu::target("avx512f")]] inline double peak_avx512(int64_t steps) {
  __m512 acc[24];
#pragma GCC unroll 24
  for (auto& a : acc) asm("" : "=v"(a) : "0"(_mm512_setzero_ps()));
  const __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
  for (int64_t k = 0; k < steps; ++k) {
#pragma GCC unroll 24
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, y);
  }
  __m512 sum = acc[0];
#pragma GCC unroll 24
  for (auto& a : acc) sum = _mm512_add_ps(sum, a);
  g_sink = _mm512_cvtss_f32(sum);
  return static_cast<double>(steps) * 24 * 16 * 2;
}

[[gnu::target("avx512f,avx512bf16")]] inline double peak_avx512bf16(int64_t steps) {
  __m512 acc[24];
#pragma GCC unroll 24
  for (auto& a : acc) asm("" : "=v"(a) : "0"(_mm512_setzero_ps()));
  const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f003f00), y = (__m512bh)_mm512_set1_epi32(0x3e803e80);
  for (int64_t k = 0; k < steps; ++k) {
#pragma GCC unroll 24
    for (auto& a : acc) a = _mm512_dpbf16_ps(a, x, y);
  }
  __m512 sum = acc[0];
#pragma GCC unroll 24
  for (auto& a : acc) sum = _mm512_add_ps(sum, a);
  g_sink = _mm512_cvtss_f32(sum);
  return static_cast<double>(steps) * 24 * 32 * 2;
}
#endif

inline Peak peak_of(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::avx512bf16:
      return peak_avx512bf16;
    case Isa::avx512:
      return peak_avx512;
    case Isa::avx2:
      return peak_avx2;
    default:
      break;
  }
#endif
  (void)isa;
  return nullptr;
}

}  // namespace bantam
