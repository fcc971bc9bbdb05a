// SPDX-License-Identifier: Apache-2.0
// Plain C++ twins of the AVX-512 intrinsics that kernels/simd_avx512.h uses, lane by lane after the instruction set's
// description, so that its code is checked on machines without AVX-512. Include before simd_avx512.h, in place of
// <immintrin.h>. The names must be the intrinsics' own; they stay inside the project's namespace. Not inlined, or the
// unrolled kernels take minutes to compile.
#pragma once
#define BANTAM_EMULATED_AVX512
#include <cmath>
#include <cstdint>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier)
namespace bantam {
namespace {

template <class T, int n>
struct Lanes {
  T v[n];
};
struct __m128i : Lanes<uint8_t, 16> {};
struct __m256i : Lanes<uint16_t, 16> {};
struct __m512 : Lanes<float, 16> {};
struct __m512i : Lanes<uint32_t, 16> {};
struct __m512bh : Lanes<uint16_t, 32> {
  explicit __m512bh(const __m512i& a) { std::memcpy(v, a.v, sizeof v); }
};
using __mmask16 = uint16_t;
constexpr int _CMP_UNORD_Q = 3;

template <class R, class Op>
R lanes(Op op) {
  R r;
  for (unsigned i = 0; i < sizeof r.v / sizeof r.v[0]; ++i) r.v[i] = op(i);
  return r;
}
[[gnu::noinline]] inline __m512 _mm512_setzero_ps() {
  return lanes<__m512>([](unsigned) { return 0.0f; });
}
[[gnu::noinline]] inline __m512 _mm512_set1_ps(float x) {
  return lanes<__m512>([=](unsigned) { return x; });
}
[[gnu::noinline]] inline __m512i _mm512_set1_epi32(int x) {
  return lanes<__m512i>([=](unsigned) { return static_cast<uint32_t>(x); });
}
[[gnu::noinline]] inline __m512 _mm512_loadu_ps(const void* p) {
  __m512 r;
  std::memcpy(r.v, p, sizeof r.v);
  return r;
}
[[gnu::noinline]] inline void _mm512_storeu_ps(void* p, const __m512& a) {
  std::memcpy(p, a.v, sizeof a.v);
}
[[gnu::noinline]] inline __m256i _mm256_loadu_si256(const __m256i* p) {
  __m256i r;
  std::memcpy(r.v, static_cast<const void*>(p), sizeof r.v);
  return r;
}
[[gnu::noinline]] inline void _mm256_storeu_si256(__m256i* p, const __m256i& a) {
  std::memcpy(static_cast<void*>(p), a.v, sizeof a.v);
}
[[gnu::noinline]] inline __m128i _mm_loadl_epi64(const __m128i* p) {
  __m128i r{};
  std::memcpy(r.v, static_cast<const void*>(p), 8);
  return r;
}
[[gnu::noinline]] inline __m128i _mm_loadu_si128(const __m128i* p) {
  __m128i r;
  std::memcpy(r.v, static_cast<const void*>(p), 16);
  return r;
}
[[gnu::noinline]] inline void _mm512_storeu_si512(void* p, const __m512i& a) {
  std::memcpy(p, a.v, sizeof a.v);
}
[[gnu::noinline]] inline __m512 _mm512_castsi512_ps(const __m512i& a) {
  return _mm512_loadu_ps(a.v);
}
[[gnu::noinline]] inline __m512i _mm512_castps_si512(const __m512& a) {
  __m512i r;
  std::memcpy(r.v, a.v, sizeof r.v);
  return r;
}
[[gnu::noinline]] inline __m512i _mm512_slli_epi32(const __m512i& a, unsigned n) {
  return lanes<__m512i>([&](unsigned i) { return n > 31 ? 0u : a.v[i] << n; });
}
[[gnu::noinline]] inline __m512i _mm512_srli_epi32(const __m512i& a, unsigned n) {
  return lanes<__m512i>([&](unsigned i) { return n > 31 ? 0u : a.v[i] >> n; });
}
inline __m512i shifted_epi64(const __m512i& a, int left) {
  __m512i r;
  for (int i = 0; i < 8; ++i) {
    uint64_t q;
    std::memcpy(&q, a.v + 2 * i, 8);
    q = left >= 0 ? q << left : q >> -left;
    std::memcpy(r.v + 2 * i, &q, 8);
  }
  return r;
}
[[gnu::noinline]] inline __m512i _mm512_slli_epi64(const __m512i& a, unsigned n) {
  return shifted_epi64(a, static_cast<int>(n));
}
[[gnu::noinline]] inline __m512i _mm512_srli_epi64(const __m512i& a, unsigned n) {
  return shifted_epi64(a, -static_cast<int>(n));
}
[[gnu::noinline]] inline __m512i _mm512_and_si512(const __m512i& a, const __m512i& b) {
  return lanes<__m512i>([&](unsigned i) { return a.v[i] & b.v[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_or_si512(const __m512i& a, const __m512i& b) {
  return lanes<__m512i>([&](unsigned i) { return a.v[i] | b.v[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_add_epi32(const __m512i& a, const __m512i& b) {
  return lanes<__m512i>([&](unsigned i) { return a.v[i] + b.v[i]; });
}
[[gnu::noinline]] inline __m512i _mm512_cvtepu16_epi32(const __m256i& a) {
  return lanes<__m512i>([&](unsigned i) { return static_cast<uint32_t>(a.v[i]); });
}
[[gnu::noinline]] inline __m256i _mm512_cvtepi32_epi16(const __m512i& a) {
  return lanes<__m256i>([&](unsigned i) { return static_cast<uint16_t>(a.v[i]); });
}
[[gnu::noinline]] inline __m512i _mm512_cvtepu8_epi32(const __m128i& a) {
  return lanes<__m512i>([&](unsigned i) { return static_cast<uint32_t>(a.v[i]); });
}
[[gnu::noinline]] inline __m512i _mm512_broadcast_i64x4(const __m256i& a) {
  __m512i r;
  std::memcpy(r.v, a.v, 32);
  std::memcpy(r.v + 8, a.v, 32);
  return r;
}
[[gnu::noinline]] inline __m512i _mm512_permutexvar_epi16(const __m512i& index, const __m512i& a) {
  uint16_t i[32], from[32], to[32];
  std::memcpy(i, index.v, sizeof i);
  std::memcpy(from, a.v, sizeof from);
  for (int j = 0; j < 32; ++j) to[j] = from[i[j] & 31];
  __m512i r;
  std::memcpy(r.v, to, sizeof to);
  return r;
}
[[gnu::noinline]] inline __m512i _mm512_cvtepu8_epi64(const __m128i& a) {
  return lanes<__m512i>([&](unsigned i) { return i % 2 ? 0u : static_cast<uint32_t>(a.v[i / 2]); });
}
[[gnu::noinline]] inline __mmask16 _mm512_cmp_ps_mask(const __m512& a, const __m512& b, int) {  // unordered only
  unsigned mask = 0;
  for (unsigned i = 0; i < 16; ++i) mask |= (std::isnan(a.v[i]) || std::isnan(b.v[i]) ? 1u : 0u) << i;
  return static_cast<__mmask16>(mask);
}
[[gnu::noinline]] inline __m512i _mm512_mask_blend_epi32(__mmask16 m, const __m512i& a, const __m512i& b) {
  return lanes<__m512i>([&](unsigned i) { return m >> i & 1 ? b.v[i] : a.v[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_add_ps(const __m512& a, const __m512& b) {
  return lanes<__m512>([&](unsigned i) { return a.v[i] + b.v[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_mul_ps(const __m512& a, const __m512& b) {
  return lanes<__m512>([&](unsigned i) { return a.v[i] * b.v[i]; });
}
[[gnu::noinline]] inline __m512 _mm512_fmadd_ps(const __m512& a, const __m512& b, const __m512& c) {
  return lanes<__m512>([&](unsigned i) { return std::fmaf(a.v[i], b.v[i], c.v[i]); });
}
[[gnu::noinline]] inline __m512 _mm512_unpacklo_ps(const __m512& a, const __m512& b) {
  return lanes<__m512>([&](unsigned i) { return (i % 2 ? b : a).v[i / 4 * 4 + i % 4 / 2]; });
}
[[gnu::noinline]] inline __m512 _mm512_unpackhi_ps(const __m512& a, const __m512& b) {
  return lanes<__m512>([&](unsigned i) { return (i % 2 ? b : a).v[i / 4 * 4 + 2 + i % 4 / 2]; });
}
[[gnu::noinline]] inline __m512 _mm512_shuffle_ps(const __m512& a, const __m512& b, unsigned imm) {
  return lanes<__m512>([&](unsigned i) { return (i % 4 < 2 ? a : b).v[i / 4 * 4 + (imm >> (i % 4 * 2) & 3)]; });
}
[[gnu::noinline]] inline __m512 _mm512_shuffle_f32x4(const __m512& a, const __m512& b, unsigned imm) {
  return lanes<__m512>([&](unsigned i) { return (i < 8 ? a : b).v[(imm >> (i / 4 * 2) & 3) * 4 + i % 4]; });
}
[[gnu::noinline]] inline __m512 _mm512_permutexvar_ps(const __m512i& index, const __m512& a) {
  return lanes<__m512>([&](unsigned i) { return a.v[index.v[i] & 15]; });
}
/// The odd pair is added first; each product and sum rounds once. (Denormals, which the instruction flushes, are kept.)
[[gnu::noinline]] inline __m512 _mm512_dpbf16_ps(const __m512& acc, const __m512bh& a, const __m512bh& b) {
  const auto f32 = [](uint16_t h) {
    const uint32_t u = static_cast<uint32_t>(h) << 16;
    float f;
    std::memcpy(&f, &u, sizeof f);
    return f;
  };
  return lanes<__m512>([&](unsigned i) {
    const float odd = std::fmaf(f32(a.v[2 * i + 1]), f32(b.v[2 * i + 1]), acc.v[i]);
    return std::fmaf(f32(a.v[2 * i]), f32(b.v[2 * i]), odd);
  });
}

}  // namespace
}  // namespace bantam
// NOLINTEND(bugprone-reserved-identifier)
