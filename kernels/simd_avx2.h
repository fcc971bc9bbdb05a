// SPDX-License-Identifier: Apache-2.0
// The tile engine's vector on AVX2 + FMA. Include only from files compiled with those flags.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "nf4_codebook.h"
#include "simd_plain.h"

namespace bantam {
namespace {

struct Avx2Simd {
  static constexpr int kLanes = 8;
  static constexpr bool kPairs = false;
  static constexpr int kUnroll = kUnrolled;  ///< steps of the micro-kernel's loop
  static constexpr int kLookup = 32;
  using F = __m256;
  /// The 16 values of a block as byte planes (0 lowest), each in both 128-bit lanes. Rounded values lack planes 0
  /// and 1.
  struct Table {
    __m256i plane[4];
    bool rounded;
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
  /// As asm, since GCC 12 picks other forms of the instruction for the intrinsic and then copies registers around them.
  static F step(F a, F b, F acc) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b));
    return acc;
  }
  /// Two 4 x 4 transposes side by side in the 128-bit lanes.
  static void transpose_lanes(F& r0, F& r1, F& r2, F& r3) {
    const F a0 = _mm256_unpacklo_ps(r0, r1), a1 = _mm256_unpackhi_ps(r0, r1);
    const F a2 = _mm256_unpacklo_ps(r2, r3), a3 = _mm256_unpackhi_ps(r2, r3);
    r0 = _mm256_shuffle_ps(a0, a2, 0x44), r1 = _mm256_shuffle_ps(a0, a2, 0xee);
    r2 = _mm256_shuffle_ps(a1, a3, 0x44), r3 = _mm256_shuffle_ps(a1, a3, 0xee);
  }
  static void transpose(F (&r)[8]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const F low = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
      r[i] = low;
    }
    transpose_lanes(r[0], r[1], r[2], r[3]);
    transpose_lanes(r[4], r[5], r[6], r[7]);
  }
  /// Loads an 8 x 8 block and transposes it; the lanes are put together by the loads.
  static void load_transposed(const float* p, int64_t stride, F (&r)[8]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float *low = p + i * stride, *high = p + (i + 4) * stride;
      r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
      r[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)), _mm_loadu_ps(high + 4), 1);
    }
    transpose_lanes(r[0], r[1], r[2], r[3]);
    transpose_lanes(r[4], r[5], r[6], r[7]);
  }
  static Table table(float absmax, bool round) {
    const F scale = set1(absmax);
    __m256i v[2] = {_mm256_castps_si256(mul(load(kNf4Code), scale)),
                    _mm256_castps_si256(mul(load(kNf4Code + 8), scale))};
    if (round) {
#pragma GCC unroll 2
      for (__m256i& u : v) {  // to nearest even; the caller sends no NaN
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
        u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
      }
    }
    // Bytes of four values gathered by plane, then the four lanes' dwords put together: two planes a vector.
    const __m256i by_plane =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i lanes = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i a = _mm256_shuffle_epi8(v[0], by_plane), b = _mm256_shuffle_epi8(v[1], by_plane);
    const __m256i p23 = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi32(a, b), lanes);
    Table t;
    t.rounded = round;
    t.plane[2] = _mm256_permute2x128_si256(p23, p23, 0x00);
    t.plane[3] = _mm256_permute2x128_si256(p23, p23, 0x11);
    const __m256i p01 = round ? p23 : _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi32(a, b), lanes);
    t.plane[0] = _mm256_permute2x128_si256(p01, p01, 0x00);
    t.plane[1] = _mm256_permute2x128_si256(p01, p01, 0x11);
    return t;
  }
  /// 32 values of 16 code bytes: a byte shuffle per plane, then the planes are interleaved.
  static void lookup(const Table& t, const uint8_t* codes, float* out) {
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    // Each byte twice, in the order that the interleaving undoes.
    const __m256i order = _mm256_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13,  //
                                           2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15);
    const __m256i twice = _mm256_shuffle_epi8(bytes, order);
    const __m256i index = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(twice, 4), _mm256_set1_epi16(0x000f)),
                                          _mm256_and_si256(twice, _mm256_set1_epi16(0x0f00)));
    const __m256i p2 = _mm256_shuffle_epi8(t.plane[2], index), p3 = _mm256_shuffle_epi8(t.plane[3], index);
    const __m256i high_a = _mm256_unpacklo_epi8(p2, p3), high_b = _mm256_unpackhi_epi8(p2, p3);
    __m256i low_a = _mm256_setzero_si256(), low_b = low_a;
    if (!t.rounded) {
      const __m256i p0 = _mm256_shuffle_epi8(t.plane[0], index), p1 = _mm256_shuffle_epi8(t.plane[1], index);
      low_a = _mm256_unpacklo_epi8(p0, p1), low_b = _mm256_unpackhi_epi8(p0, p1);
    }
    store(out, _mm256_castsi256_ps(_mm256_unpacklo_epi16(low_a, high_a)));
    store(out + 8, _mm256_castsi256_ps(_mm256_unpackhi_epi16(low_a, high_a)));
    store(out + 16, _mm256_castsi256_ps(_mm256_unpacklo_epi16(low_b, high_b)));
    store(out + 24, _mm256_castsi256_ps(_mm256_unpackhi_epi16(low_b, high_b)));
  }
};

}  // namespace
}  // namespace bantam
