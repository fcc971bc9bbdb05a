// SPDX-License-Identifier: Apache-2.0
// Attention on every backend: against the double oracle, and the equalities of the row contract.
#include "kernels/attention.h"
#include "kernels/error.h"
#include "tests/kernels/device_harness.h"
#include "tests/kernels/tolerance.h"
#include "tests/reference/attention_reference.h"

using namespace bantam;
using namespace bantam::test;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16};
// Tensors of each type with products as f32, and bf16 ones with products as bf16.
constexpr struct {
  DType type;
  Math math;
} kProducts[] = {{DType::f32, Math::f32}, {DType::bf16, Math::f32}, {DType::bf16, Math::bf16}};

struct Layout {
  std::vector<int64_t> lengths;
  int64_t heads, kv_heads, head_dim;
  int64_t pad = 0, offset = 0;  // elements between rows; of the first from an aligned address
  int64_t window = 0;
  float softcap = 0;
  Math math = Math::f32;
};

std::vector<int32_t> offsets(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> cu = {0};
  for (const int64_t n : lengths) cu.push_back(static_cast<int32_t>(cu.back() + n));
  return cu;
}

struct Problem {
  Layout layout;
  DType type, dout_type;
  std::vector<int32_t> cu;
  int64_t rows, width, kv_width;
  float scale;
  std::vector<float> q, k, v, dout;

  Problem(const Layout& l, DType t, DType dt)
      : layout(l), type(t), dout_type(dt), cu(offsets(l.lengths)), rows(cu.back()) {
    width = l.heads * l.head_dim;
    kv_width = l.kv_heads * l.head_dim;
    scale = 1.0f / std::sqrt(static_cast<float>(l.head_dim));
    q = rounded(random_values(rows * width, 1, 1.5f), t);
    k = rounded(random_values(rows * kv_width, 2, 1.5f), t);
    v = rounded(random_values(rows * kv_width, 3, 1.5f), t);
    dout = rounded(random_values(rows * width, 4, 1.5f), dt);
  }
  AttentionShape shape() const {
    return {cu.data(),    cu.data(),       static_cast<int64_t>(cu.size()) - 1,
            layout.heads, layout.kv_heads, layout.head_dim,
            scale,        layout.window,   layout.softcap};
  }
  reference::AttentionShape reference_shape() const {
    return {cu, cu, layout.heads, layout.kv_heads, layout.head_dim, scale, layout.window, layout.softcap};
  }
};

// Windows of one key, odd, across tiles, longer than any sequence; a softcap that bends most scores, and a weak one.
struct Variant {
  int64_t window;
  float softcap;
};
const std::vector<Variant> kVariants = {{1, 0}, {7, 0}, {65, 0}, {1 << 20, 0}, {0, 1}, {0, 30}, {7, 1}, {40, 2}};
Layout with(Layout l, const Variant& v) {
  l.window = v.window;
  l.softcap = v.softcap;
  return l;
}
Layout with(Layout l, Math math) {
  l.math = math;
  return l;
}

struct Result {
  std::vector<float> o, lse, delta, dq, dk, dv;
  bool operator==(const Result&) const = default;
};

// What gradients are wanted; the others are absent.
struct Wanted {
  bool dq = true, dk = true, dv = true;
};

Result run(Context& ctx, const Problem& p, DType gradient = DType::f32, DType dk_type = DType::f32,
           const Wanted& wanted = {}) {
  const auto matrix = [&](DType t, int64_t cols, const std::vector<float>& values) {
    return DeviceMatrix(ctx, t, p.rows, cols, values, cols + p.layout.pad, p.layout.offset);
  };
  const auto room = [&](DType t, int64_t cols) {
    return DeviceMatrix(ctx, t, p.rows, cols, cols + p.layout.pad, p.layout.offset);
  };
  const DeviceMatrix q = matrix(p.type, p.width, p.q), k = matrix(p.type, p.kv_width, p.k);
  const DeviceMatrix v = matrix(p.type, p.kv_width, p.v), dout = matrix(p.dout_type, p.width, p.dout);
  const DeviceMatrix o = room(p.type, p.width), lse = room(DType::f32, p.layout.heads);
  const DeviceMatrix delta = room(DType::f32, p.layout.heads);
  const DeviceMatrix dq = room(gradient, p.width), dk = room(dk_type, p.kv_width), dv = room(gradient, p.kv_width);
  attention(ctx, {.shape = p.shape(), .q = q, .k = k, .v = v, .o = o, .lse = lse, .math = p.layout.math});
  attention_backward(ctx, {.shape = p.shape(),
                           .q = q,
                           .k = k,
                           .v = v,
                           .o = o,
                           .lse = lse,
                           .dout = dout,
                           .delta = delta,
                           .dq = wanted.dq ? dq : TensorView(),
                           .dk = wanted.dk ? dk : TensorView(),
                           .dv = wanted.dv ? dv : TensorView(),
                           .math = p.layout.math});
  const auto gradient_of = [](bool there, const DeviceMatrix& m) { return there ? m.host() : std::vector<float>(); };
  return {o.host(),
          lse.host(),
          delta.host(),
          gradient_of(wanted.dq, dq),
          gradient_of(wanted.dk, dk),
          gradient_of(wanted.dv, dv)};
}

// Each row within `tolerance` of its norm, or of the mean norm, or of what values of `floor` give (one key: dq is 0).
void check_rows(const char* name, const std::vector<float>& got, const std::vector<double>& want, int64_t cols,
                double tolerance, double floor = 0.05) {
  REQUIRE(got.size() == want.size());
  const auto n = static_cast<size_t>(cols);
  double mean = 0;
  for (const double x : want) mean += x * x * static_cast<double>(cols) / static_cast<double>(want.size());
  mean = std::max(std::sqrt(mean), floor * std::sqrt(static_cast<double>(cols)));
  for (size_t r = 0; r < got.size() / n; ++r) {
    double error = 0, norm = 0;
    for (size_t i = r * n; i < (r + 1) * n; ++i) {
      error += (got[i] - want[i]) * (got[i] - want[i]);
      norm += want[i] * want[i];
    }
    const double relative = std::sqrt(error) / std::max(std::sqrt(norm), mean);
    if (relative <= tolerance) continue;  // NaN never is
    FAIL_CHECK(std::string(name), ": row ", r, " has relative error ", relative, ", tolerance ", tolerance);
    return;
  }
}

std::vector<double> widened(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}

void check_against_oracle(Context& ctx, const Problem& p, DType gradient, DType dk_type) {
  const Layout& l = p.layout;
  CAPTURE(l.lengths.front());
  CAPTURE(l.heads);
  CAPTURE(l.head_dim);
  CAPTURE(l.window);
  CAPTURE(l.softcap);
  CAPTURE(std::string(name_of(p.type)));
  CAPTURE(std::string(name_of(gradient)));
  const Result got = run(ctx, p, gradient, dk_type);
  const reference::AttentionShape shape = p.reference_shape();
  const auto q = widened(p.q), k = widened(p.k), v = widened(p.v), dout = widened(p.dout);
  const auto forward = reference::attention(shape, q, k, v);
  // Backward reads o and lse as they are stored.
  const reference::AttentionOutput<double> stored{widened(got.o), widened(got.lse)};
  const auto want = reference::attention_backward(shape, q, k, v, stored, dout);
  std::vector<double> delta(got.lse.size());
  for (size_t i = 0; i < dout.size(); ++i) delta[i / static_cast<size_t>(l.head_dim)] += dout[i] * stored.o[i];
  using namespace tolerance;
  const bool mma = p.type == DType::bf16 && l.math == Math::bf16;
  const double dout_rounded = mma && p.dout_type == DType::f32 ? kAttentionDout : 0;
  const double p_rounded = mma ? kAttentionP : 0, ds_rounded = mma ? kAttentionDs + dout_rounded : 0;
  const auto bound = [](double products, DType t) { return products + (t == DType::bf16 ? kBf16 : 0); };
  check_rows("o", got.o, forward.o, p.width, bound(kAttention + p_rounded, p.type));
  check_rows("lse", got.lse, forward.lse, l.heads, mma ? kAttentionMmaScore : kAttention);
  // cuDNN, where the library under test takes it, has its own.
  if (attention_library(ctx).version == 0) check_rows("delta", got.delta, delta, l.heads, kAttentionBackward);
  // With one key in every row all of dq and dk cancels; each of the two terms that do has values of about 0.5.
  const double floor = l.window == 1 ? 0.5 : 0.05;
  check_rows("dq", got.dq, want.dq, p.width, bound(kAttentionBackward + ds_rounded, gradient), floor);
  check_rows("dk", got.dk, want.dk, p.kv_width, bound(kAttentionBackward + ds_rounded, dk_type), floor);
  check_rows("dv", got.dv, want.dv, p.kv_width, bound(kAttentionBackward + p_rounded + dout_rounded, gradient));
}

// Rows [first, first + n) of a dense matrix of `cols` columns.
std::vector<float> rows_of(const std::vector<float>& v, int64_t first, int64_t n, int64_t cols) {
  return {v.begin() + first * cols, v.begin() + (first + n) * cols};
}

TEST_CASE("attention agrees with the oracle") {
  on_each_backend([](Context& ctx) {
    // One key; tiles with and without a rest; several sequences; groups that do not divide a tile; widths of each tile
    // and between them; rows that cannot be read four at a time.
    for (const Layout& l : std::vector<Layout>{{{1}, 1, 1, 64},
                                               {{63}, 2, 2, 24},
                                               {{65, 1, 97}, 6, 2, 64, 8, 4},
                                               {{0, 33, 0, 2, 0}, 7, 1, 80},
                                               {{70}, 3, 1, 128, 3, 1},
                                               {{130, 5}, 1, 1, 16},
                                               {{33, 18}, 3, 1, 136},
                                               {{40}, 2, 1, 256},
                                               {{18}, 2, 1, 257, 2, 1},
                                               {{35, 3}, 3, 1, 512},
                                               {{33}, 5, 5, 5},
                                               {{20, 21}, 4, 2, 30}}) {
      for (const DType t : kTypes) check_against_oracle(ctx, Problem(l, t, t), DType::f32, DType::f32);
      check_against_oracle(ctx, Problem(with(l, Math::bf16), DType::bf16, DType::bf16), DType::f32, DType::f32);
    }
  });
}

TEST_CASE("attention agrees with the oracle: window and softcap") {
  on_each_backend([](Context& ctx) {
    for (const Variant& variant : kVariants)
      for (const Layout& l :
           std::vector<Layout>{{{1}, 1, 1, 64}, {{65, 1, 97}, 6, 2, 24}, {{0, 140, 3}, 3, 1, 72}, {{70}, 2, 1, 136}})
        for (const auto& [t, math] : kProducts)
          check_against_oracle(ctx, Problem(with(with(l, variant), math), t, t), DType::f32, DType::f32);
    for (const auto& [t, math] : kProducts)
      check_against_oracle(ctx, Problem(with(with({{37}, 2, 1, 260}, {7, 1}), math), t, t), DType::f32, DType::f32);
  });
}

TEST_CASE("attention: a window that holds every key gives the numbers of none") {
  on_each_backend([](Context& ctx) {
    for (const auto& [t, math] : kProducts)
      for (const float softcap : {0.0f, 2.0f}) {
        const Layout l = with({{70, 1, 33}, 4, 2, 40}, math);
        const Result want = run(ctx, Problem(with(l, {0, softcap}), t, t));
        for (const int64_t window : {int64_t{70}, int64_t{1} << 31, INT64_MAX})
          CHECK(run(ctx, Problem(with(l, {window, softcap}), t, t)) == want);
        CHECK(run(ctx, Problem(with(l, {69, softcap}), t, t)).o != want.o);
      }
  });
}

TEST_CASE("attention: rows beyond the window leave a row as it is, and tiles of them are not read") {
  on_each_backend([](Context& ctx) {
    for (const auto& [type, math] : kProducts) {
      Problem p(with({{400}, 2, 1, 16, 0, 0, 40}, math), type, type);
      const Result before = run(ctx, p);
      for (size_t i = 0; i < 16; ++i) p.k[100 * 16 + i] += 1.0f;
      const Result after = run(ctx, p);
      for (int64_t r = 0; r < 400; ++r) {
        CHECK((rows_of(after.o, r, 1, 32) == rows_of(before.o, r, 1, 32)) == (r < 100 || r >= 140));
        CHECK((rows_of(after.dq, r, 1, 32) == rows_of(before.dq, r, 1, 32)) == (r < 100 || r >= 140));
        CHECK((rows_of(after.dk, r, 1, 16) == rows_of(before.dk, r, 1, 16)) == (r + 40 <= 100 || r >= 140));
      }
      // A zero weight times NaN would be NaN: tiles have at most 128 keys, so key 0 is in none that row 256 sees.
      for (const size_t row : {0, 399}) {
        for (size_t i = 0; i < 16; ++i) p.v[row * 16 + i] = p.k[row * 16 + i] = std::nanf("");
        for (size_t i = 0; i < 32; ++i) p.dout[row * 32 + i] = std::nanf("");
      }
      const Result bad = run(ctx, p);
      for (const auto* x : {&bad.o, &bad.dq})
        for (const float y : rows_of(*x, 256, 64, 32)) CHECK_FALSE(std::isnan(y));
      for (const auto* x : {&bad.dk, &bad.dv})
        for (const float y : rows_of(*x, 256, 64, 16)) CHECK_FALSE(std::isnan(y));
    }
  });
}

TEST_CASE("attention: gradients in every type") {
  on_each_backend([](Context& ctx) {
    for (const DType t : kTypes)
      for (const DType dt : kTypes)
        for (const DType gradient : kTypes)
          for (const DType dk : kTypes)
            for (const int64_t pad : {0, 3})
              check_against_oracle(ctx, Problem({{9, 20}, 4, 2, 20, pad, 0}, t, dt), gradient, dk);
    // bf16 tiles: rows that are read eight, four and one at a time.
    for (const DType dt : kTypes)
      for (const DType gradient : kTypes)
        for (const DType dk : kTypes)
          for (const Layout& l :
               std::vector<Layout>{{{9, 20}, 4, 2, 24}, {{9, 20}, 4, 2, 24, 4, 4}, {{9, 20}, 4, 2, 21, 3, 1}})
            check_against_oracle(ctx, Problem(with(l, Math::bf16), DType::bf16, dt), gradient, dk);
  });
}

TEST_CASE("attention: a gradient that nobody wants is left out, and the others stay") {
  on_each_backend([](Context& ctx) {
    for (const auto& [t, math] : kProducts)
      for (unsigned mask = 0; mask < 8; ++mask) {
        CAPTURE(mask);
        const Problem p(with({{30, 35}, 4, 2, 24}, math), t, t);
        const Wanted wanted{(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
        Result want = run(ctx, p);
        if (!wanted.dq) want.dq.clear();
        if (!wanted.dk) want.dk.clear();
        if (!wanted.dv) want.dv.clear();
        CHECK(run(ctx, p, DType::f32, DType::f32, wanted) == want);
      }
  });
}

TEST_CASE("attention: many short sequences") {
  on_each_backend([](Context& ctx) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < 700; ++i) lengths.push_back(1 + i % 3);
    for (const auto& [t, math] : kProducts)
      check_against_oracle(ctx, Problem(with({lengths, 2, 1, 8}, math), t, t), DType::f32, DType::f32);
  });
}

TEST_CASE("attention: equal calls give equal numbers") {
  on_each_backend([](Context& ctx) {
    for (const auto& [t, math] : kProducts) {
      const Problem p(with({{70, 35}, 6, 2, 72}, math), t, t);
      const Result want = run(ctx, p);
      for (int i = 0; i < 3; ++i) CHECK(run(ctx, p) == want);
    }
  });
}

TEST_CASE("attention: a packed sequence has the numbers that it has alone") {
  on_each_backend([](Context& ctx) {
    for (const auto& [type, math] : kProducts)
      for (const Layout& one : std::vector<Layout>{{{}, 3, 1, 32},
                                                   {{}, 3, 1, 96},
                                                   {{}, 3, 1, 128},
                                                   {{}, 3, 1, 160},
                                                   {{}, 3, 1, 264},
                                                   {{}, 3, 1, 32, 0, 0, 19, 2}}) {
        Layout l = with(one, math);
        l.lengths = {5, 1, 70, 33};
        if (l.head_dim > 256) l.lengths = {5, 36};
        const Problem p(l, type, type);
        const Result packed = run(ctx, p);
        for (size_t s = 0; s + 1 < p.cu.size(); ++s) {
          const int64_t first = p.cu[s], n = p.layout.lengths[s];
          CAPTURE(l.head_dim);
          CAPTURE(s);
          l.lengths = {n};
          Problem alone(l, type, type);
          alone.q = rows_of(p.q, first, n, p.width);
          alone.k = rows_of(p.k, first, n, p.kv_width);
          alone.v = rows_of(p.v, first, n, p.kv_width);
          alone.dout = rows_of(p.dout, first, n, p.width);
          const Result got = run(ctx, alone);
          CHECK(got.o == rows_of(packed.o, first, n, p.width));
          CHECK(got.lse == rows_of(packed.lse, first, n, 3));
          CHECK(got.delta == rows_of(packed.delta, first, n, 3));
          CHECK(got.dq == rows_of(packed.dq, first, n, p.width));
          CHECK(got.dk == rows_of(packed.dk, first, n, p.kv_width));
          CHECK(got.dv == rows_of(packed.dv, first, n, p.kv_width));
        }
      }
  });
}

TEST_CASE("attention: later keys leave a row as it is") {
  on_each_backend([](Context& ctx) {
    for (const auto& [type, math] : kProducts) {
      Problem p(with({{60, 20}, 2, 1, 16}, math), type, type);
      const Result before = run(ctx, p);
      const int64_t changed = 41;
      for (int64_t i = 0; i < p.kv_width; ++i) {
        p.k[static_cast<size_t>(changed * p.kv_width + i)] += 1.0f;
        p.v[static_cast<size_t>(changed * p.kv_width + i)] -= 1.0f;
      }
      const Result after = run(ctx, p);
      CHECK(rows_of(after.o, 0, changed, p.width) == rows_of(before.o, 0, changed, p.width));
      CHECK(rows_of(after.dq, 0, changed, p.width) == rows_of(before.dq, 0, changed, p.width));
      for (int64_t r = changed; r < 60; ++r) CHECK(rows_of(after.o, r, 1, p.width) != rows_of(before.o, r, 1, p.width));
      CHECK(rows_of(after.o, 60, 20, p.width) == rows_of(before.o, 60, 20, p.width));
      CHECK(rows_of(after.dk, 60, 20, p.kv_width) == rows_of(before.dk, 60, 20, p.kv_width));
    }
  });
}

TEST_CASE("attention: decoding with a cache has the numbers of the prefill") {
  on_each_backend([](Context& ctx) {
    // Two sequences of n tokens each; a call has `step` queries of both, and as keys what came before, and these.
    for (const auto& [t, math] : kProducts) {
      if (math == Math::bf16 && attention_library(ctx).version > 0) continue;  // cuDNN takes the prefill alone
      for (const Layout& l : std::vector<Layout>{{{}, 6, 2, 64}, {{}, 6, 2, 192}, {{}, 6, 2, 32, 0, 0, 21, 2}}) {
        const int64_t n = 75, heads = 6;
        Layout two = with(l, math);
        two.lengths = {n, n};
        const Problem p(two, t, t);
        const Result whole = run(ctx, p);
        for (const int64_t step : {1, 2, 30})
          for (const int64_t done : {int64_t{0}, int64_t{31}, int64_t{32}, n - step}) {
            const int64_t seen = done + step;
            const auto part = [&](const std::vector<float>& v, int64_t first, int64_t rows, int64_t cols) {
              auto both = rows_of(v, first, rows, cols);
              const auto second = rows_of(v, n + first, rows, cols);
              both.insert(both.end(), second.begin(), second.end());
              return both;
            };
            const std::vector<int32_t> cu_q = offsets({step, step}), cu_k = offsets({seen, seen});
            const DeviceMatrix q(ctx, t, 2 * step, p.width, part(p.q, done, step, p.width));
            const DeviceMatrix k(ctx, t, 2 * seen, p.kv_width, part(p.k, 0, seen, p.kv_width));
            const DeviceMatrix v(ctx, t, 2 * seen, p.kv_width, part(p.v, 0, seen, p.kv_width));
            const DeviceMatrix o(ctx, t, 2 * step, p.width), lse(ctx, DType::f32, 2 * step, heads);
            AttentionShape shape = p.shape();
            shape.cu_q = cu_q.data();
            shape.cu_k = cu_k.data();
            attention(ctx, {.shape = shape, .q = q, .k = k, .v = v, .o = o, .lse = lse, .math = math});
            CAPTURE(done);
            CAPTURE(step);
            CHECK(o.host() == part(whole.o, done, step, p.width));
            CHECK(lse.host() == part(whole.lse, done, step, heads));
          }
      }
    }
  });
}

TEST_CASE("attention: scores far apart, and a NaN, come out as they should") {
  on_each_backend([](Context& ctx) {
    Problem p({{80}, 1, 1, 8}, DType::f32, DType::f32);
    for (float& x : p.q) x *= 40.0f;
    for (float& x : p.k) x *= 40.0f;
    const reference::AttentionShape shape = p.reference_shape();
    const auto want = reference::attention(shape, widened(p.q), widened(p.k), widened(p.v));
    const Result got = run(ctx, p);
    check_rows("o", got.o, want.o, 8, 1e-2);  // scores up to ~1e4 have a rounding error of ~1e-3 each
    check_rows("lse", got.lse, want.lse, 1, 1e-6);
    for (const float x : got.dq) CHECK(std::isfinite(x));
    p.q[20 * 8 + 3] = std::nanf("");
    const Result bad = run(ctx, p);
    for (size_t i = 0; i < bad.o.size(); ++i) CHECK(std::isnan(bad.o[i]) == (i / 8 == 20));
  });
}

}  // namespace
