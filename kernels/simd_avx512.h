// SPDX-License-Identifier: Apache-2.0
// The tile engine's vectors on AVX-512 (F, BW, VL, DQ) and AVX512-BF16. Include only from files compiled with those
// flags, or after a plain C++ twin of the intrinsics (tests do, so that this code is checked on machines that lack
// AVX-512).
#pragma once
#ifndef BANTAM_EMULATED_AVX512
#include <immintrin.h>
#endif

#include <cstdint>

#include "nf4_codebook.h"
#include "simd_plain.h"

namespace bantam {
namespace {

struct Avx512Simd {
  static constexpr int kLanes = 16;
  static constexpr bool kPairs = false;
#ifdef BANTAM_EMULATED_AVX512
  static constexpr int kUnroll = 1;
#else
  static constexpr int kUnroll = kUnrolled;
#endif
  static constexpr int kLookup = 16;
  using F = __m512;
  struct Table {
    __m512 values;
  };
  static F zero() {
    return _mm512_setzero_ps();
  }
  static F set1(float x) {
    return _mm512_set1_ps(x);
  }
  static F broadcast(const float* p) {
    return _mm512_set1_ps(*p);
  }
  static F load(const float* p) {
    return _mm512_loadu_ps(p);
  }
  static void store(float* p, F a) {
    _mm512_storeu_ps(p, a);
  }
  static F load_bf16(const uint16_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  }
  /// The bf16 nearest (even) to each lane, in its low half.
  static __m512i bf16_of(F a) {
    const __m512i u = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, up, quiet), 16);
  }
  static void store_bf16(uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(bf16_of(a)));
  }
  static F add(F a, F b) {
    return _mm512_add_ps(a, b);
  }
  static F mul(F a, F b) {
    return _mm512_mul_ps(a, b);
  }
  /// As asm, since GCC 12 picks other forms of the instruction for the intrinsic and then copies registers around them.
  static F step(F a, F b, F acc) {
#ifdef BANTAM_EMULATED_AVX512
    return _mm512_fmadd_ps(a, b, acc);
#else
    asm("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
#endif
  }
  /// 16 x 16: pairs and quads within 128-bit lanes, then the lanes.
  static void transpose(F (&r)[16]) {
    F t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
      t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
      r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
      r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
  }
  static void load_transposed(const float* p, int64_t stride, F (&r)[kLanes]) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) r[i] = load(p + i * stride);
    transpose(r);
  }
  static Table table(float absmax, bool round) {
    const F v = mul(load(kNf4Code), set1(absmax));
    return {round ? _mm512_castsi512_ps(_mm512_slli_epi32(bf16_of(v), 16)) : v};
  }
  /// 16 values of eight code bytes; the permutation reads the low four bits of each index only.
  static void lookup(const Table& t, const uint8_t* codes, float* out) {
    const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    const __m512i index = _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));
    store(out, _mm512_permutexvar_ps(index, t.values));
  }
};

#if defined(__AVX512BF16__) || defined(BANTAM_EMULATED_AVX512)
/// A step is two k: bf16 pairs in 32 bits, the first k in the low half.
struct Avx512Bf16Simd : Avx512Simd {
  static constexpr bool kPairs = true;
  static constexpr int kLookup16 = 32;
  struct Table16 {
    __m512i values;  // 16 bf16, twice: the permutation reads five bits of an index, so the fifth does not matter
  };
  static Table16 table16(float absmax) {
    const __m512i v = bf16_of(mul(load(kNf4Code), set1(absmax)));
    return {_mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(v))};
  }
  /// 32 bf16 of 16 code bytes.
  static void lookup16(const Table16& t, const uint8_t* codes, uint16_t* out) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
    const __m512i index = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(index, t.values));
  }
  /// 16 steps of two rows of bf16.
  static F pair16(const uint16_t* first, const uint16_t* second) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_cvtepu16_epi32(a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16)));
  }
  static F pair(F first, F second) {
    return _mm512_castsi512_ps(_mm512_or_si512(bf16_of(first), _mm512_slli_epi32(bf16_of(second), 16)));
  }
  static F step(F a, F b, F acc) {
#ifdef BANTAM_EMULATED_AVX512
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
#else
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
#endif
  }
};
#endif

}  // namespace
}  // namespace bantam
