// SPDX-License-Identifier: Apache-2.0
// What every tile engine must do, whatever its tier; run on the tiers of this machine and on the emulated ones.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "kernels/product_cases.h"
#include "kernels/product_tile.h"
#include "kernels/tolerance.h"

namespace bantam::test {

/// 64-byte aligned bytes with a guard behind them.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), data_(std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64)) {
    std::memset(data_.get(), 0xa5, bytes + 64);
  }
  void* get() { return data_.get(); }
  bool intact() const {
    const auto* p = static_cast<const unsigned char*>(data_.get()) + bytes_;
    for (int i = 0; i < 64; ++i)
      if (p[i] != 0xa5) return false;
    return true;
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<void, Free> data_;
};

inline bool same_bits(float x, float y) {
  return std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y));
}

inline void check_decode(const TileEngine& e) {
  for (int round = 0; round < 300; ++round) {
    const int64_t rows = 1 + static_cast<int64_t>(rng()() % 5), cols = 1 + static_cast<int64_t>(rng()() % 400);
    const WeightFormat format = round % 8 == 0   ? WeightFormat::bf16
                                : round % 8 == 1 ? WeightFormat::f32
                                                 : WeightFormat::nf4;
    Matrix w(format, rows, cols, round % 2);
    if (round % 16 == 2 && !w.absmax.empty()) {
      w.absmax[0] = std::numeric_limits<float>::infinity();
      w.absmax.back() = std::numeric_limits<float>::quiet_NaN();
    }
    const int64_t r = static_cast<int64_t>(rng()() % static_cast<uint64_t>(rows));
    const int64_t k0 = static_cast<int64_t>(rng()() % static_cast<uint64_t>(cols));
    const int64_t n = 1 + static_cast<int64_t>(rng()() % static_cast<uint64_t>(cols - k0));
    for (const Math math : {Math::f32, Math::bf16}) {
      Guarded out(static_cast<size_t>(n) * sizeof(float));
      e.decode_row(math, w.view, r, k0, n, static_cast<float*>(out.get()));
      int64_t wrong = 0;
      for (int64_t j = 0; j < n; ++j) wrong += !same_bits(static_cast<float*>(out.get())[j], w.at(r, k0 + j, math));
      CAPTURE(cols);
      CAPTURE(k0);
      CAPTURE(n);
      CHECK(wrong == 0);
      CHECK(out.intact());
    }
  }
}

/// c of pack_b, pack_a and multiply for rows [m0, m0 + m), columns [c0, c0 + n) and reduction [k0, k0 + kc).
inline std::vector<float> tile_product(const TileEngine& e, Math math, const Term& t, int64_t m0, int64_t m, int64_t c0,
                                       int64_t n, int64_t k0, int64_t kc, const std::vector<float>* start = nullptr) {
  const ProductTerm p = t.view();
  REQUIRE(e.b_bytes(math, n, kc) % 64 == 0);
  REQUIRE(e.a_bytes(math, m, kc) % 64 == 0);
  Guarded b(e.b_bytes(math, n, kc)), a(e.a_bytes(math, m, kc));
  e.pack_b(math, p.b, p.layout, c0, n, k0, kc, b.get());
  e.pack_a(math, p.a, p.a_transposed, m0, m, k0, kc, a.get());
  CHECK(b.intact());
  CHECK(a.intact());
  const int64_t ldc = n + 3;
  std::vector<float> c(static_cast<size_t>(m * ldc), 77.0f);
  if (start)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c[static_cast<size_t>(i * ldc + j)] = (*start)[static_cast<size_t>(i * n + j)];
  e.multiply(math, m, n, kc, a.get(), b.get(), c.data(), ldc, start != nullptr);
  std::vector<float> dense;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      const float v = c[static_cast<size_t>(i * ldc + j)];
      if (j < n)
        dense.push_back(v);
      else
        CHECK(v == 77.0f);
    }
  return dense;
}

inline void check_products(const TileEngine& e, bool bf16_products, int rounds) {
  const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 12, 13, 15, 16, 17, 31, 33, 48, 49, 63, 64, 65, 81, 130};
  const auto pick = [&] { return sizes[rng()() % std::size(sizes)]; };
  const WeightFormat formats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::nf4};
  for (int round = 0; round < rounds; ++round) {
    const int64_t m = pick(), n = pick(), k = pick() + (round % 10 == 0 ? 200 : 0);
    const Term t(m, n, k, formats[rng()() % 2], formats[rng()() % 3], rng()() % 2, rng()() % 2, rng()() % 2);
    const Math math = rng()() % 2 ? Math::bf16 : Math::f32;
    const auto c = tile_product(e, math, t, 0, m, 0, n, 0, k);
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        Reference r;
        r.add(t, i, j, math);
        double bound = r.magnitude * static_cast<double>(k + 4) * std::ldexp(1.0, -24) + 1e-30;
        if (bf16_products && math == Math::bf16) bound += r.magnitude * 2.01 * tolerance::kBf16;
        worst = std::max(worst, std::fabs(static_cast<double>(c[static_cast<size_t>(i * n + j)]) - r.sum) / bound);
      }
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    CAPTURE(t.nn);
    CAPTURE(t.transposed);
    CAPTURE(static_cast<int>(math));
    CHECK(worst <= 1);

    // Any block of it, from anywhere, is the same numbers; and so is a sum that goes on in c.
    const auto part = [&](int64_t all) { return 1 + static_cast<int64_t>(rng()() % static_cast<uint64_t>(all)); };
    const int64_t mm = part(m), nn = part(n), m0 = part(m - mm + 1) - 1, c0 = part(n - nn + 1) - 1;
    const auto block = tile_product(e, math, t, m0, mm, c0, nn, 0, k);
    int64_t wrong = 0;
    for (int64_t i = 0; i < mm; ++i)
      for (int64_t j = 0; j < nn; ++j)
        wrong += block[static_cast<size_t>(i * nn + j)] != c[static_cast<size_t>((m0 + i) * n + c0 + j)];
    CHECK(wrong == 0);
    const int64_t cut = k / 2 / 8 * 8;
    if (cut > 0) {
      const auto first = tile_product(e, math, t, 0, m, 0, n, 0, cut);
      const auto second = tile_product(e, math, t, 0, m, 0, n, cut, k - cut);
      const auto both = tile_product(e, math, t, 0, m, 0, n, cut, k - cut, &first);
      for (size_t i = 0; i < both.size(); ++i) wrong += both[i] != first[i] + second[i];
      CHECK(wrong == 0);
    }
  }
}

inline void check_finish(const TileEngine& e) {
  for (int flags = 0; flags < 32; ++flags)
    for (const int64_t n : {1, 7, 16, 37}) {
      const bool half = flags & 1, with_bias = flags & 2, with_residual = flags & 4, half_residual = flags & 8,
                 add = flags & 16;
      Matrix sum(WeightFormat::f32, 3, n, false, 2), c(half ? WeightFormat::bf16 : WeightFormat::f32, 3, n, false, 1);
      const Matrix residual(half_residual ? WeightFormat::bf16 : WeightFormat::f32, 3, n),
          bias(WeightFormat::f32, 1, n);
      std::vector<float> expected;
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < n; ++j) {
          volatile float v = 0.7f * sum.at(i, j, Math::f32);  // volatile: each operation rounds
          if (with_bias) v = v + bias.at(0, j, Math::f32);
          if (with_residual) v = v + residual.at(i, j, Math::f32);
          if (add) v = v + c.at(i, j, Math::f32);
          expected.push_back(half ? to_f32(to_bf16(v)) : v);
        }
      TileFinish f;
      f.rows = 3, f.cols = n;
      f.sum = sum.f32.data(), f.sum_stride = n + 2;
      f.alpha = 0.7f;
      if (with_bias) f.bias = bias.f32.data();
      if (with_residual) f.residual = residual.tensor();
      f.c = half ? static_cast<void*>(c.half.data()) : c.f32.data();
      f.c_is_bf16 = half, f.c_stride = n + 1, f.add = add;
      e.finish(f);
      int64_t wrong = 0;
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < n; ++j) wrong += c.at(i, j, Math::f32) != expected[static_cast<size_t>(i * n + j)];
      CAPTURE(flags);
      CAPTURE(n);
      CHECK(wrong == 0);
    }
}

}  // namespace bantam::test
