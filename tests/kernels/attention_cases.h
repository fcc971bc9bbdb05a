// SPDX-License-Identifier: Apache-2.0
// Problems for the tests of the CPU attention, and their comparison with the double oracle.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "reference/attention_reference.h"
#include "tolerance.h"

namespace bantam::test {

// Relative error of the rows of a result, in the 2-norm; tolerance.h says where it is from. bf16: one rounding of o
// (2^-8 of an element at most); gradients are rounded likewise and read the rounded o through delta. A tier with bf16
// products rounds q and k (the scores), p and v as well.
inline constexpr double kF32Forward = tolerance::kAttention, kF32Backward = tolerance::kAttentionBackward;
inline constexpr double kBf16Forward = 0x1p-8, kBf16TierForward = 4 * 0x1p-8, kBf16Backward = 1.0 / 100;

struct Layout {
  std::vector<int64_t> lengths;
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0;
  float softcap = 0;
};
inline std::string describe(const Layout& l) {
  std::string s = str("heads ", l.heads, "/", l.kv_heads, " head_dim ", l.head_dim, " window ", l.window, " softcap ",
                      l.softcap, " lengths");
  for (const int64_t n : l.lengths) s += str(" ", n);
  return s;
}

inline std::vector<int32_t> offsets(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> cu = {0};
  for (const int64_t n : lengths) cu.push_back(static_cast<int32_t>(cu.back() + n));
  return cu;
}

inline Tensor random_matrix(DType dtype, int64_t rows, int64_t cols, unsigned seed) {
  Tensor t(dtype, rows, cols);
  std::mt19937 bits(seed);
  with_float_type(dtype, [&]<class T>() {
    for (int64_t i = 0; i < rows * cols; ++i)
      t.data<T>()[i] = from_f32<T>(static_cast<float>(bits()) * 0x1p-31f * 1.5f - 1.5f);
  });
  return t;
}

inline std::vector<double> values(const ConstTensorView& v) {
  std::vector<double> out;
  with_float_type(v.dtype, [&]<class T>() {
    for (int64_t r = 0; r < v.rows; ++r)
      for (int64_t c = 0; c < v.cols; ++c) out.push_back(to_f32(v.row<T>(r)[c]));
  });
  return out;
}

inline bool same_bits(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.rows != b.rows || a.cols != b.cols || a.dtype != b.dtype) return false;
  for (int64_t r = 0; r < a.rows; ++r)
    if (std::memcmp(a.row_range(r, 1).data, b.row_range(r, 1).data, static_cast<size_t>(a.cols) * size_of(a.dtype)))
      return false;
  return true;
}

// Greatest error of a row against its norm, or the mean row norm, or (one key: dq and dk are 0) what values of `floor`
// give.
inline double row_error(const ConstTensorView& got, const std::vector<double>& want, double floor = 0.05) {
  const std::vector<double> g = values(got);
  REQUIRE(g.size() == want.size());
  double mean = 0, worst = 0;
  for (const double x : want) mean += x * x;
  mean = std::max(std::sqrt(mean / static_cast<double>(got.rows)), floor * std::sqrt(static_cast<double>(got.cols)));
  for (int64_t r = 0; r < got.rows; ++r) {
    double error = 0, norm = 0;
    for (int64_t c = 0; c < got.cols; ++c) {
      const double x = want[static_cast<size_t>(r * got.cols + c)];
      const double e = g[static_cast<size_t>(r * got.cols + c)] - x;
      error += e * e;
      norm += x * x;
    }
    const double relative = std::sqrt(error) / std::max(std::sqrt(norm), mean);
    if (std::isnan(relative)) return relative;  // no bound holds
    worst = std::max(worst, relative);
  }
  return worst;
}

struct Problem {
  Layout layout;
  DType dtype;
  std::vector<int32_t> cu;
  Tensor q, k, v, dout;

  Problem(const Layout& l, DType t, unsigned seed = 1) : layout(l), dtype(t), cu(offsets(l.lengths)) {
    const int64_t rows = cu.back();
    q = random_matrix(t, rows, l.heads * l.head_dim, seed);
    k = random_matrix(t, rows, l.kv_heads * l.head_dim, seed + 1);
    v = random_matrix(t, rows, l.kv_heads * l.head_dim, seed + 2);
    dout = random_matrix(t, rows, l.heads * l.head_dim, seed + 3);
  }
  AttentionShape shape() const {
    return {cu.data(),
            cu.data(),
            static_cast<int64_t>(cu.size()) - 1,
            layout.heads,
            layout.kv_heads,
            layout.head_dim,
            1.0f / std::sqrt(static_cast<float>(layout.head_dim)),
            layout.window,
            layout.softcap};
  }
  reference::AttentionShape reference_shape() const {
    const AttentionShape s = shape();
    return {cu, cu, s.heads, s.kv_heads, s.head_dim, s.scale, s.window, s.softcap};
  }
};

// Windows of one key, odd, across tiles, longer than any sequence; a softcap that bends most scores, and a weak one.
struct Variant {
  int64_t window;
  float softcap;
};
inline const std::vector<Variant> kVariants = {{0, 0}, {1, 0},  {7, 0}, {129, 0}, {1 << 20, 0},
                                               {0, 1}, {0, 30}, {7, 1}, {65, 2}};
inline Layout with(Layout l, const Variant& v) {
  l.window = v.window;
  l.softcap = v.softcap;
  return l;
}

struct Result {
  Tensor o, lse, delta, dq, dk, dv;
};

inline Result run(Context& ctx, const Problem& p, Math math = Math::f32, DType gradient = DType::f32) {
  const int64_t rows = p.q.rows(), width = p.q.cols(), kv_width = p.k.cols(), heads = p.layout.heads;
  Result r{Tensor(p.dtype, rows, width),  Tensor(DType::f32, rows, heads),  Tensor(DType::f32, rows, heads),
           Tensor(gradient, rows, width), Tensor(gradient, rows, kv_width), Tensor(gradient, rows, kv_width)};
  attention(ctx, {p.shape(), p.q, p.k, p.v, r.o, r.lse, math});
  attention_backward(ctx, {p.shape(), p.q, p.k, p.v, r.o, r.lse, p.dout, r.delta, r.dq, r.dk, r.dv, math});
  return r;
}

inline void check_against_oracle(Context& ctx, const Problem& p, Math math, DType gradient) {
  CAPTURE(describe(p.layout));
  const Result got = run(ctx, p, math, gradient);
  const reference::AttentionShape shape = p.reference_shape();
  const auto q = values(p.q), k = values(p.k), v = values(p.v);
  const auto forward = reference::attention(shape, q, k, v);
  const auto want = reference::attention_backward(shape, q, k, v, forward, values(p.dout));
  // A tier with bf16 arithmetic also rounds p and ds.
  const bool half_products = math == Math::bf16 && ctx.isa() == Isa::avx512bf16;
  const bool half = p.dtype == DType::bf16 || half_products;
  const double forward_bound = half_products ? kBf16TierForward : half ? kBf16Forward : kF32Forward;
  CHECK(row_error(got.o, forward.o) <= forward_bound);
  CHECK(row_error(got.lse, forward.lse) <= (math == Math::bf16 && half ? forward_bound : kF32Forward));
  const double tolerance = half || gradient == DType::bf16 ? kBf16Backward : kF32Backward;
  // With one key in every row all of dq and dk cancels; each of the two terms that do has values of about 0.5.
  const double floor = p.layout.window == 1 ? 0.5 : 0.05;
  CHECK(row_error(got.dq, want.dq, floor) <= tolerance);
  CHECK(row_error(got.dk, want.dk, floor) <= tolerance);
  CHECK(row_error(got.dv, want.dv) <= tolerance);
}

}  // namespace bantam::test
