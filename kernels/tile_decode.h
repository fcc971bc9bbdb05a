// SPDX-License-Identifier: Apache-2.0
// How the tile engine reads rows of any weight: to f32, or to bf16 for tiers that multiply pairs. Part of tile_engine.h:
// the same rules hold (everything in an unnamed namespace).
#pragma once
#include <cstdint>

#include "product_tile.h"
#include "simd_plain.h"

namespace bantam {
namespace {

constexpr int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}
constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/// A matrix that is read row by row: a weight, or the left operand.
struct Rows {
  WeightFormat format;
  const void* data;
  int64_t stride;
  const WeightView* nf4;
};
inline Rows rows_of(const WeightView& w) {
  return {w.format, w.data, w.format == WeightFormat::nf4 ? w.cols : w.stride, &w};
}
inline Rows rows_of(const ConstTensorView& t) {
  return {t.dtype == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32, t.data, t.stride, nullptr};
}
inline const float* f32_at(const Rows& w, int64_t r, int64_t k) {
  return static_cast<const float*>(w.data) + r * w.stride + k;
}
inline const uint16_t* bf16_at(const Rows& w, int64_t r, int64_t k) {
  return static_cast<const uint16_t*>(w.data) + r * w.stride + k;
}

inline float scale_of_block(const WeightView& w, int64_t b) {
  if (w.absmax) return w.absmax[b];
  const float scaled = w.nested_code[w.absmax_q[b]] * w.nested_absmax[b / WeightView::kNestedBlock];
  return scaled + w.nested_offset;
}

/// One value; used at odd nibbles and tails, and equal to the tables' by construction.
inline float nf4_value(const uint8_t* codes, int64_t i, float absmax, bool round) {
  const float v = kNf4Code[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4] * absmax;
  return round ? rounded_to_bf16(v) : v;
}

/// Elements [i, i + n) of the flat weight; they may begin, end and straddle blocks anywhere.
template <class S>
void decode_nf4(const WeightView& w, int64_t i, int64_t n, bool round, float* out) {
  const uint8_t* codes = static_cast<const uint8_t*>(w.data);
  while (n > 0) {
    const int64_t block = i / WeightView::kBlock;
    const int64_t here = least(n, (block + 1) * WeightView::kBlock - i);
    const float absmax = scale_of_block(w, block);
    int64_t j = 0;
    // A table from a scale that is no finite number would need NaN cases; one element at a time has them.
    if (i % 2 == 0 && here > 1 && absmax - absmax == 0.0f) {
      const typename S::Table t = S::table(absmax, round);
      const uint8_t* from = codes + i / 2;
      for (; j + S::kLookup <= here; j += S::kLookup) S::lookup(t, from + j / 2, out + j);
      if (j < here) {
        uint8_t last[S::kLookup / 2] = {};
        float values[S::kLookup];
        __builtin_memcpy(last, from + j / 2, static_cast<size_t>(here - j + 1) / 2);
        S::lookup(t, last, values);
        __builtin_memcpy(out + j, values, static_cast<size_t>(here - j) * sizeof(float));
        j = here;
      }
    }
    for (; j < here; ++j) out[j] = nf4_value(codes, i + j, absmax, round);
    i += here, out += here, n -= here;
  }
}

inline void prefetch(const Rows& w, int64_t r, int64_t k0, int64_t n) {
  const int64_t bits = w.format == WeightFormat::nf4 ? 4 : w.format == WeightFormat::bf16 ? 16 : 32;
  const char* from = static_cast<const char*>(w.data) + (r * w.stride + k0) * bits / 8;
  for (int64_t j = 0; j < n * bits / 8; j += 64) __builtin_prefetch(from + j);
}

template <class S>
void decode(const Rows& w, int64_t r, int64_t k0, int64_t n, bool round, float* out) {
  int64_t j = 0;
  if (w.format == WeightFormat::nf4) {
    decode_nf4<S>(*w.nf4, r * w.stride + k0, n, round, out);
  } else if (w.format == WeightFormat::bf16) {
    const uint16_t* p = bf16_at(w, r, k0);
    for (; j + S::kLanes <= n; j += S::kLanes) S::store(out + j, S::load_bf16(p + j));
    for (; j < n; ++j) out[j] = float_of(static_cast<uint32_t>(p[j]) << 16);
  } else {
    __builtin_memcpy(out, f32_at(w, r, k0), static_cast<size_t>(n) * sizeof(float));
  }
}

/// The same as bf16, for tiers that multiply pairs: the table holds the rounded products, so values are decode's.
template <class S>
void decode16_nf4(const WeightView& w, int64_t i, int64_t n, uint16_t* out) {
  const uint8_t* codes = static_cast<const uint8_t*>(w.data);
  while (n > 0) {
    const int64_t block = i / WeightView::kBlock;
    const int64_t here = least(n, (block + 1) * WeightView::kBlock - i);
    const float absmax = scale_of_block(w, block);
    int64_t j = 0;
    if (i % 2 == 0 && here > 1 && absmax - absmax == 0.0f) {
      const typename S::Table16 t = S::table16(absmax);
      const uint8_t* from = codes + i / 2;
      for (; j + S::kLookup16 <= here; j += S::kLookup16) S::lookup16(t, from + j / 2, out + j);
      if (j < here) {
        uint8_t last[S::kLookup16 / 2] = {};
        uint16_t values[S::kLookup16];
        __builtin_memcpy(last, from + j / 2, static_cast<size_t>(here - j + 1) / 2);
        S::lookup16(t, last, values);
        __builtin_memcpy(out + j, values, static_cast<size_t>(here - j) * sizeof(uint16_t));
        j = here;
      }
    }
    for (; j < here; ++j) out[j] = bf16_bits(nf4_value(codes, i + j, absmax, true));
    i += here, out += here, n -= here;
  }
}

template <class S>
void decode16(const Rows& w, int64_t r, int64_t k0, int64_t n, uint16_t* out) {
  if (w.format == WeightFormat::nf4) {
    decode16_nf4<S>(*w.nf4, r * w.stride + k0, n, out);
  } else if (w.format == WeightFormat::bf16) {
    __builtin_memcpy(out, bf16_at(w, r, k0), static_cast<size_t>(n) * sizeof(uint16_t));
  } else {
    const float* f = f32_at(w, r, k0);
    int64_t j = 0;
    for (; j + S::kLanes <= n; j += S::kLanes) S::store_bf16(out + j, S::load(f + j));
    for (; j < n; ++j) out[j] = bf16_bits(f[j]);
  }
}

}  // namespace
}  // namespace bantam
