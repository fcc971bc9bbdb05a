// SPDX-License-Identifier: Apache-2.0
// The tile engine's vector on AVX2 + FMA. Include only from files compiled with those flags.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "nf4_codebook.h"

namespace bantam {
namespace {

struct Avx2Simd {
  static constexpr int kLanes = 8;
  static constexpr bool kPairs = false;
  using F = __m256;
  struct Table {
    __m256 low, high;
  };
  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F load_bf16(const uint16_t* p) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  /// Nearest even; the low halves are zero afterwards.
  static F round_bf16(F a) {
    const __m256i u = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const F r =
        _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_and_ps(r, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void store_bf16(uint16_t* p, F a) {
    const __m256i h = _mm256_srli_epi32(_mm256_castps_si256(round_bf16(a)), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F step(F a, F b, F acc) { return _mm256_fmadd_ps(a, b, acc); }
  static void transpose(F (&r)[8]) {
    const F a0 = _mm256_unpacklo_ps(r[0], r[1]), a1 = _mm256_unpackhi_ps(r[0], r[1]);
    const F a2 = _mm256_unpacklo_ps(r[2], r[3]), a3 = _mm256_unpackhi_ps(r[2], r[3]);
    const F a4 = _mm256_unpacklo_ps(r[4], r[5]), a5 = _mm256_unpackhi_ps(r[4], r[5]);
    const F a6 = _mm256_unpacklo_ps(r[6], r[7]), a7 = _mm256_unpackhi_ps(r[6], r[7]);
    const F b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
    const F b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
    const F b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
    const F b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
    r[0] = _mm256_permute2f128_ps(b0, b4, 0x20), r[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
    r[1] = _mm256_permute2f128_ps(b1, b5, 0x20), r[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
    r[2] = _mm256_permute2f128_ps(b2, b6, 0x20), r[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
    r[3] = _mm256_permute2f128_ps(b3, b7, 0x20), r[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
  }
  static Table table(float absmax, bool round) {
    const F s = set1(absmax);
    Table t{mul(load(kNf4Code), s), mul(load(kNf4Code + 8), s)};
    if (round) t = {round_bf16(t.low), round_bf16(t.high)};
    return t;
  }
  /// Eight values of four code bytes: two eight-entry permutations, chosen between by bit 3 of the code.
  static F lookup(const Table& t, const uint8_t* codes) {
    int32_t four;
    __builtin_memcpy(&four, codes, sizeof four);
    const __m256i shift = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    const __m256i x = _mm256_srlv_epi32(_mm256_set1_epi32(four), shift);
    const F low = _mm256_permutevar8x32_ps(t.low, x), high = _mm256_permutevar8x32_ps(t.high, x);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(x, 28)));
  }
};

}  // namespace
}  // namespace bantam
