// SPDX-License-Identifier: Apache-2.0
// The tile engine's template, instantiated once per ISA tier by tile_<tier>.cc with a vector type S (simd_*.h).
// Those files are compiled with wide -m flags, so nothing here may become a shared inline function that the linker
// could pick for a lesser machine: everything is in an unnamed namespace, and no inline function of another header, no
// std:: function and no constructor of a shared type is called.
//
// Layouts. A step is one k, or with S::kPairs a pair of k as two bf16 in 32 bits. Packed b: panels of kCols columns,
// each [step][kCols]. Packed a: rows [m][row_stride(kc)] of steps.
#pragma once
#include <cstdint>

#include "tile_decode.h"

namespace bantam {
namespace {

/// kRows x kVecs: the micro-tile that fills the register file (accumulators, kVecs of b, one of a).
template <class S, int kMaxRows, int kVecs>
struct Tile {
  static constexpr int kRows = kMaxRows;
  using F = typename S::F;
  static constexpr int kLanes = S::kLanes, kCols = kVecs * kLanes;
  static constexpr int kPerStep = S::kPairs ? 2 : 1;
  static constexpr int64_t kChunk = 64;  // steps that are staged in a row buffer at a time

  static int64_t steps(int64_t kc) { return (kc + kPerStep - 1) / kPerStep; }
  // One more line than needed, so that rows do not all fall into the same cache sets.
  static int64_t row_stride(int64_t kc) { return round_up(steps(kc), 16) + 16; }
  static size_t b_bytes(int64_t nc, int64_t kc) {
    return static_cast<size_t>(round_up(nc, kCols) * steps(kc)) * sizeof(float);
  }
  static size_t a_bytes(int64_t m, int64_t kc) { return static_cast<size_t>(m * row_stride(kc)) * sizeof(float); }

  /// Row r, [k, k + n) as steps.
  static void stage(const Rows& w, int64_t r, int64_t k, int64_t n, bool round, float* out) {
    if constexpr (!S::kPairs) {
      decode<S>(w, r, k, n, round, out);
    } else {
      uint16_t* half = reinterpret_cast<uint16_t*>(out);
      decode16<S>(w, r, k, n, half);
      if (n % 2) half[n] = 0;
    }
  }

  static void pack_b(const Rows& w, BLayout layout, int64_t c0, int64_t nc, int64_t k0, int64_t kc, bool round,
                     float* out) {
    if (layout == BLayout::nt)
      pack_nt(w, c0, nc, k0, kc, round, out);
    else
      pack_nn(w, c0, nc, k0, kc, round, out);
  }

  /// Columns of the panel are rows of w: a panel's rows are staged, kChunk steps at a time, then transposed.
  static void pack_nt(const Rows& w, int64_t c0, int64_t nc, int64_t k0, int64_t kc, bool round, float* out) {
    static_assert(kChunk % kLanes == 0);
    alignas(64) float buffer[kCols][kChunk];
    for (int64_t c = 0; c < nc; c += kCols, out += kCols * steps(kc)) {
      const int64_t valid = least(nc - c, kCols);
      if (valid < kCols) __builtin_memset(buffer, 0, sizeof buffer);
      for (int64_t k = 0; k < kc; k += kChunk * kPerStep) {
        const int64_t n = least(kc - k, kChunk * kPerStep), n_steps = steps(n);
        const bool in_place = !S::kPairs && w.format == WeightFormat::f32 && valid == kCols && n % kLanes == 0;
        const float* source = in_place ? f32_at(w, c0 + c, k0 + k) : buffer[0];
        const int64_t stride = in_place ? w.stride : kChunk;
        if (!in_place)
          for (int64_t i = 0; i < valid; ++i) {
            // What comes next at this place: rows are far apart, so the hardware does not foresee it.
            if (k + n < kc)
              prefetch(w, c0 + c + i, k0 + k + n, kChunk * kPerStep);
            else if (c + kCols + i < nc)
              prefetch(w, c0 + c + kCols + i, k0, kChunk * kPerStep);
            stage(w, c0 + c + i, k0 + k, n, round, buffer[i]);
          }
        for (int64_t s = 0; s < n_steps; s += kLanes) {
          float* to = out + (k / kPerStep + s) * kCols;
          for (int64_t g = 0; g < kCols; g += kLanes) {
            F r[kLanes];
            S::load_transposed(source + g * stride + s, stride, r);
            if (n_steps - s >= kLanes) {
#pragma GCC unroll 16
              for (int i = 0; i < kLanes; ++i) S::store(to + i * kCols + g, r[i]);
            } else {
              alignas(64) float tail[kLanes][kLanes];
#pragma GCC unroll 16
              for (int i = 0; i < kLanes; ++i) S::store(tail[i], r[i]);
              for (int64_t i = 0; i < n_steps - s; ++i) S::store(to + i * kCols + g, S::load(tail[i]));
            }
          }
        }
      }
    }
  }

  /// Rows of the panel are pieces of rows of w.
  static void pack_nn(const Rows& w, int64_t c0, int64_t nc, int64_t k0, int64_t kc, bool round, float* out) {
    if constexpr (S::kPairs)
      pack_nn_pairs(w, c0, nc, k0, kc, out);
    else
      pack_nn_single(w, c0, nc, k0, kc, round, out);
  }
  static constexpr int64_t kWidth = kCols * 8;  // columns decoded at a time

  static void pack_nn_single(const Rows& w, int64_t c0, int64_t nc, int64_t k0, int64_t kc, bool round, float* out) {
    alignas(64) float row[kWidth];
    const int64_t panel = kCols * kc;
    for (int64_t c = 0; c < nc; c += kWidth) {
      const int64_t n = least(nc - c, kWidth), padded = round_up(n, kCols);
      for (int64_t j = n; j < padded; ++j) row[j] = 0;
      float* to = out + c / kCols * panel;
      for (int64_t k = 0; k < kc; ++k, to += kCols) {
        const float* source = row;
        if (w.format == WeightFormat::f32 && n == padded)
          source = f32_at(w, k0 + k, c0 + c);
        else
          decode<S>(w, k0 + k, c0 + c, n, round, row);
        for (int64_t p = 0; p < padded / kCols; ++p) {
#pragma GCC unroll 4
          for (int j = 0; j < kCols; j += kLanes) S::store(to + p * panel + j, S::load(source + p * kCols + j));
        }
      }
    }
  }

  static void pack_nn_pairs(const Rows& w, int64_t c0, int64_t nc, int64_t k0, int64_t kc, float* out) {
    alignas(64) uint16_t row[2][kWidth];
    const int64_t panel = kCols * steps(kc);
    for (int64_t c = 0; c < nc; c += kWidth) {
      const int64_t n = least(nc - c, kWidth), padded = round_up(n, kCols);
      for (auto& r : row)
        for (int64_t j = n; j < padded; ++j) r[j] = 0;
      float* to = out + c / kCols * panel;
      for (int64_t k = 0; k < kc; k += 2, to += kCols) {
        const uint16_t* source[2] = {row[0], row[1]};
        for (int64_t u = 0; u < 2; ++u) {
          if (k + u >= kc)
            __builtin_memset(row[u], 0, sizeof row[u]);
          else if (w.format == WeightFormat::bf16 && n == padded)
            source[u] = bf16_at(w, k0 + k + u, c0 + c);
          else
            decode16<S>(w, k0 + k + u, c0 + c, n, row[u]);
        }
        for (int64_t p = 0; p < padded / kCols; ++p) {
#pragma GCC unroll 4
          for (int j = 0; j < kCols; j += kLanes)
            S::store(to + p * panel + j, S::pair16(source[0] + p * kCols + j, source[1] + p * kCols + j));
        }
      }
    }
  }

  static void pack_a(const Rows& a, bool transposed, int64_t m0, int64_t m, int64_t k0, int64_t kc, float* out) {
    const int64_t stride = row_stride(kc);
    if (!transposed) {
      const int64_t element = a.format == WeightFormat::bf16 ? 2 : 4, bytes = kc * element;
      for (int64_t i = 0; i < m; ++i) {
        // A row's piece is too short for the hardware to foresee the next one.
        if (i + 4 < m) {
          const char* ahead = static_cast<const char*>(a.data) + ((m0 + i + 4) * a.stride + k0) * element;
          for (int64_t j = 0; j < bytes; j += 64) __builtin_prefetch(ahead + j);
        }
        stage(a, m0 + i, k0, kc, false, out + i * stride);
      }
      return;
    }
    alignas(64) float row[kPerStep][kLanes];
    for (int64_t s = 0; s < steps(kc); s += kLanes) {
      const int64_t ns = least(steps(kc) - s, kLanes);
      for (int64_t i = 0; i < m; i += kLanes) {
        const int64_t n = least(m - i, kLanes);
        F r[kLanes];
        for (int64_t t = 0; t < kLanes; ++t) {
          F v[kPerStep];
          for (int64_t u = 0; u < kPerStep; ++u) {
            const int64_t k = (s + t) * kPerStep + u;
            if (k >= kc) {
              v[u] = S::zero();
            } else if (n == kLanes) {
              v[u] = a.format == WeightFormat::bf16 ? S::load_bf16(bf16_at(a, k0 + k, m0 + i))
                                                    : S::load(f32_at(a, k0 + k, m0 + i));
            } else {
              decode<PlainSimd>(a, k0 + k, m0 + i, n, false, row[u]);
              for (int64_t j = n; j < kLanes; ++j) row[u][j] = 0;
              v[u] = S::load(row[u]);
            }
          }
          if constexpr (S::kPairs)
            r[t] = S::pair(v[0], v[kPerStep - 1]);
          else
            r[t] = v[0];
        }
        S::transpose(r);
        for (int64_t j = 0; j < n; ++j) {
          float* to = out + (i + j) * stride + s;
          S::store(to, r[j]);  // rows are padded to whole vectors
        }
        (void)ns;
      }
    }
  }

  /// c[rows, vecs * kLanes] (=|+=) a b; lda and the panel's width in floats.
  template <int rows, int vecs>
  [[gnu::noinline]] static void micro(int64_t n_steps, const float* a, int64_t lda, const float* b, float* c,
                                      int64_t ldc, bool accumulate) {
    constexpr int kUnroll = S::kUnroll;
    F acc[rows][vecs];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      __builtin_prefetch(c + i * ldc, 1, 3);
#pragma GCC unroll 4
      for (int j = 0; j < vecs; ++j) acc[i][j] = S::zero();
    }
    // A pointer a row, as long as there are registers for them.
    constexpr int kShare = rows <= 6 ? 1 : 3;
    const float* base[(rows + kShare - 1) / kShare];
#pragma GCC unroll 6
    for (int g = 0; g < (rows + kShare - 1) / kShare; ++g) base[g] = a + kShare * g * lda;
    const auto step = [&](int u) __attribute__((always_inline)) {
      F bv[vecs];
#pragma GCC unroll 4
      for (int j = 0; j < vecs; ++j) bv[j] = S::load(b + u * kCols + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        const F av = S::broadcast(base[i / kShare] + i % kShare * lda + u);
#pragma GCC unroll 4
        for (int j = 0; j < vecs; ++j) acc[i][j] = S::step(av, bv[j], acc[i][j]);
      }
    };
    // The empty asm keeps the compiler from trading the few pointers for an index and many additions.
    const auto advance = [&](int n) __attribute__((always_inline)) {
      b += n * kCols;
      asm("" : "+r"(b));
#pragma GCC unroll 6
      for (auto& p : base) {
        p += n;
        asm("" : "+r"(p));
      }
    };
    for (; n_steps >= kUnroll; n_steps -= kUnroll) {
#pragma GCC unroll 8
      for (int u = 0; u < kUnroll; ++u) step(u);
      advance(kUnroll);
    }
    for (; n_steps > 0; --n_steps) {
      step(0);
      advance(1);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vecs; ++j) {
        F v = acc[i][j];
        float* to = c + i * ldc + j * kLanes;
        if (accumulate) v = S::add(S::load(to), v);
        S::store(to, v);
      }
  }

  using Micro = void (*)(int64_t, const float*, int64_t, const float*, float*, int64_t, bool);
  template <int vecs, int... i>
  struct Table {
    static constexpr Micro of_rows[sizeof...(i)] = {micro<i + 1, vecs>...};
  };
  template <int vecs, int n, int... i>
  struct Tables : Tables<vecs, n - 1, n - 1, i...> {};
  template <int vecs, int... i>
  struct Tables<vecs, 0, i...> : Table<vecs, i...> {};

  static int64_t rows_now(int64_t left, int max_rows) {
    return left >= 2 * max_rows || left == max_rows ? max_rows : left > max_rows ? (left + 1) / 2 : left;
  }

  /// All rows of one panel of vecs vectors, of which n columns are wanted.
  template <int vecs, int max_rows>
  static void narrow(int64_t m, int64_t n, int64_t n_steps, const float* a, int64_t lda, const float* b, float* c,
                     int64_t ldc, bool accumulate) {
    for (int64_t i = 0, rows; i < m; i += rows) {
      rows = rows_now(m - i, max_rows);
      alignas(64) float part[max_rows * vecs * kLanes];
      Tables<vecs, max_rows>::of_rows[rows - 1](n_steps, a + i * lda, lda, b, part, vecs * kLanes, false);
      for (int64_t r = 0; r < rows; ++r) {
        float* to = c + (i + r) * ldc;
        for (int64_t j = 0; j < n; ++j) {
          const float v = part[r * vecs * kLanes + j];
          to[j] = accumulate ? to[j] + v : v;
        }
      }
    }
  }

  static void multiply(int64_t m, int64_t n, int64_t kc, const float* a, const float* b, float* c, int64_t ldc,
                       bool accumulate) {
    const int64_t n_steps = steps(kc), lda = row_stride(kc), whole = n / kCols * kCols, panel = n_steps * kCols;
    // A few rows of a stay in L1 while b passes from L2.
    for (int64_t i = 0, rows; i < m; i += rows) {
      rows = rows_now(m - i, kMaxRows);
      const Micro f = Tables<kVecs, kMaxRows>::of_rows[rows - 1];
      for (int64_t j = 0; j < whole; j += kCols)
        f(n_steps, a + i * lda, lda, b + j / kCols * panel, c + i * ldc + j, ldc, accumulate);
    }
    if (whole == n) return;
    // A narrow panel leaves registers free: more rows keep as many chains in flight.
    const int64_t left = n - whole;
    b += whole / kCols * panel, c += whole;
    if (left > kCols / 2)
      narrow<kVecs, kMaxRows>(m, left, n_steps, a, lda, b, c, ldc, accumulate);
    else if (left > kCols / 4)
      narrow<kVecs / 2, 12>(m, left, n_steps, a, lda, b, c, ldc, accumulate);
    else
      narrow<kVecs == 2 ? 1 : kVecs / 4, 12>(m, left, n_steps, a, lda, b, c, ldc, accumulate);
  }
};

/// One row's end: alpha * sum + bias + residual + old c, each rounded in f32, then once to the dtype of c.
template <class S>
void finish_row(int64_t n, const float* sum, float alpha, const float* bias, const Rows* residual, int64_t row,
                bool add, const Rows& c) {
  float* c32 = const_cast<float*>(f32_at(c, row, 0));
  uint16_t* c16 = const_cast<uint16_t*>(bf16_at(c, row, 0));
  const bool half = c.format == WeightFormat::bf16;
  // Two loops over the same arithmetic: whole vectors, then single elements.
  const auto vector_at = [](const Rows& w, int64_t r, int64_t j) {
    return w.format == WeightFormat::bf16 ? S::load_bf16(bf16_at(w, r, j)) : S::load(f32_at(w, r, j));
  };
  const auto element_at = [](const Rows& w, int64_t r, int64_t j) {
    return w.format == WeightFormat::bf16 ? float_of(static_cast<uint32_t>(*bf16_at(w, r, j)) << 16) : *f32_at(w, r, j);
  };
  int64_t j = 0;
  for (; j + S::kLanes <= n; j += S::kLanes) {
    typename S::F v = S::mul(S::set1(alpha), S::load(sum + j));
    if (bias) v = S::add(v, S::load(bias + j));
    if (residual) v = S::add(v, vector_at(*residual, row, j));
    if (add) v = S::add(v, vector_at(c, row, j));
    if (half)
      S::store_bf16(c16 + j, v);
    else
      S::store(c32 + j, v);
  }
  for (; j < n; ++j) {
    float v = alpha * sum[j];
    if (bias) v = v + bias[j];
    if (residual) v = v + element_at(*residual, row, j);
    if (add) v = v + element_at(c, row, j);
    if (half)
      c16[j] = bf16_bits(v);
    else
      c32[j] = v;
  }
}

/// The table's functions: T is the tile of Math::f32, T16 that of Math::bf16 (the same where the tier has no bf16 dot
/// product: then only frozen weights are rounded).
template <class S, class T, class T16>
struct Engine {
  static size_t b_bytes(Math math, int64_t nc, int64_t kc) {
    return static_cast<size_t>(
        round_up(static_cast<int64_t>(math == Math::bf16 ? T16::b_bytes(nc, kc) : T::b_bytes(nc, kc)), 64));
  }
  static size_t a_bytes(Math math, int64_t m, int64_t kc) {
    return math == Math::bf16 ? T16::a_bytes(m, kc) : T::a_bytes(m, kc);
  }
  static void pack_b(Math math, const WeightView& b, BLayout layout, int64_t c0, int64_t nc, int64_t k0, int64_t kc,
                     void* out) {
    if (math == Math::bf16)
      T16::pack_b(rows_of(b), layout, c0, nc, k0, kc, true, static_cast<float*>(out));
    else
      T::pack_b(rows_of(b), layout, c0, nc, k0, kc, false, static_cast<float*>(out));
  }
  static void pack_a(Math math, const ConstTensorView& a, bool transposed, int64_t m0, int64_t m, int64_t k0,
                     int64_t kc, void* out) {
    if (math == Math::bf16)
      T16::pack_a(rows_of(a), transposed, m0, m, k0, kc, static_cast<float*>(out));
    else
      T::pack_a(rows_of(a), transposed, m0, m, k0, kc, static_cast<float*>(out));
  }
  static void multiply(Math math, int64_t m, int64_t n, int64_t kc, const void* a, const void* b, float* c, int64_t ldc,
                       bool accumulate) {
    const float *pa = static_cast<const float*>(a), *pb = static_cast<const float*>(b);
    if (math == Math::bf16)
      T16::multiply(m, n, kc, pa, pb, c, ldc, accumulate);
    else
      T::multiply(m, n, kc, pa, pb, c, ldc, accumulate);
  }
  static void decode_row(Math math, const WeightView& w, int64_t r, int64_t k0, int64_t n, float* out) {
    decode<S>(rows_of(w), r, k0, n, math == Math::bf16, out);
  }
  static void finish(const TileFinish& f) {
    const Rows residual = rows_of(f.residual);
    const Rows c = {f.c_is_bf16 ? WeightFormat::bf16 : WeightFormat::f32, f.c, f.c_stride, nullptr};
    for (int64_t i = 0; i < f.rows; ++i)
      finish_row<S>(f.cols, f.sum + i * f.sum_stride, f.alpha, f.bias, residual.data ? &residual : nullptr, i, f.add,
                    c);
  }
  static constexpr TileEngine table(const char* name) {
    return {name,   T::kRows, T::kCols, T16::kPerStep == 2, b_bytes, a_bytes,
            pack_b, pack_a,   multiply, decode_row,         finish};
  }
};

}  // namespace
}  // namespace bantam
