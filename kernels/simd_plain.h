// SPDX-License-Identifier: Apache-2.0
// The tile engine's vector in plain C++: the scalar tier. Include only from tile_*.cc and tests; everything here is
// local to the including file (see tile_engine.h for why).
#pragma once
#include <cstdint>

#include "nf4_codebook.h"

namespace bantam {
namespace {

inline float float_of(uint32_t u) {
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}
inline uint32_t bits_of(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, sizeof u);
  return u;
}
/// f32 bits to the bf16 above them, nearest even; NaN stays NaN.
inline uint16_t bf16_bits(float f) {
  const uint32_t u = bits_of(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline float rounded_to_bf16(float f) {
  return float_of(static_cast<uint32_t>(bf16_bits(f)) << 16);
}

// Sanitizers instrument every access: what is unrolled by eight then takes the compiler half an hour.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kUnrolled = 1;
#else
constexpr int kUnrolled = 8;
#endif

struct PlainSimd {
  static constexpr int kLanes = 8;
  static constexpr bool kPairs = false;
  static constexpr int kUnroll = 1;  ///< steps of the micro-kernel's loop
  static constexpr int kLookup = 8;  ///< elements that one lookup decodes
  struct F {
    float v[kLanes];
  };
  struct Table {
    float v[16];
  };
  template <class Op>
  static F each(Op op) {
    F r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = op(i);
    return r;
  }
  static F zero() {
    return each([](int) { return 0.0f; });
  }
  static F set1(float x) {
    return each([=](int) { return x; });
  }
  static F broadcast(const float* p) { return set1(*p); }
  static F load(const float* p) {
    return each([=](int i) { return p[i]; });
  }
  static void store(float* p, F a) { __builtin_memcpy(p, a.v, sizeof a.v); }
  static F load_bf16(const uint16_t* p) {
    return each([=](int i) { return float_of(static_cast<uint32_t>(p[i]) << 16); });
  }
  static void store_bf16(uint16_t* p, F a) {
    for (int i = 0; i < kLanes; ++i) p[i] = bf16_bits(a.v[i]);
  }
  static F add(F a, F b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  /// acc + a * b with one rounding, as the vector tiers compute it.
  static F step(F a, F b, F acc) {
    return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], acc.v[i]); });
  }
  static void transpose(F (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < i; ++j) {
        const float t = r[i].v[j];
        r[i].v[j] = r[j].v[i];
        r[j].v[i] = t;
      }
  }
  static void load_transposed(const float* p, int64_t stride, F (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) r[i] = load(p + i * stride);
    transpose(r);
  }
  static Table table(float absmax, bool round) {
    Table t;
    for (int c = 0; c < 16; ++c) {
      t.v[c] = kNf4Code[c] * absmax;
      if (round) t.v[c] = rounded_to_bf16(t.v[c]);
    }
    return t;
  }
  static void lookup(const Table& t, const uint8_t* codes, float* out) {
    for (int i = 0; i < kLookup; ++i) out[i] = t.v[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
  }
};

}  // namespace
}  // namespace bantam
