// SPDX-License-Identifier: Apache-2.0
#include "attention_cases.h"

using namespace bantam;
using namespace bantam::test;

TEST_CASE("attention oracle: gradients agree with the complex step") {
  using C = std::complex<double>;
  int64_t window = 0;
  float softcap = 0;
  SUBCASE("plain") {}
  SUBCASE("window") {
    window = 3;
  }
  SUBCASE("softcap") {
    softcap = 1.5f;
  }
  SUBCASE("both") {
    window = 2, softcap = 0.75f;
  }
  const Problem p({{3, 1, 5}, 4, 2, 3, window, softcap}, DType::f32);
  const auto shape = p.reference_shape();
  const auto q = values(p.q), k = values(p.k), v = values(p.v), dout = values(p.dout);
  const auto g = reference::attention_backward(shape, q, k, v, reference::attention(shape, q, k, v), dout);
  const std::vector<C> cq(q.begin(), q.end()), ck(k.begin(), k.end()), cv(v.begin(), v.end());
  constexpr double h = 1e-30;
  const auto slope = [&](const std::vector<C>& a, const std::vector<C>& b, const std::vector<C>& c) {
    const auto out = reference::attention(shape, a, b, c);
    double sum = 0;
    for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * out.o[i].imag() / h;
    return sum;
  };
  const auto step = [&](std::vector<C> x, size_t i) {
    x[i] += C(0, h);
    return x;
  };
  for (size_t i = 0; i < q.size(); ++i) CHECK(std::fabs(slope(step(cq, i), ck, cv) - g.dq[i]) <= 1e-12);
  for (size_t i = 0; i < k.size(); ++i) CHECK(std::fabs(slope(cq, step(ck, i), cv) - g.dk[i]) <= 1e-12);
  for (size_t i = 0; i < v.size(); ++i) CHECK(std::fabs(slope(cq, ck, step(cv, i)) - g.dv[i]) <= 1e-12);
}

TEST_CASE("attention agrees with the oracle, f32") {
  Context ctx({.num_threads = 2});
  for (const Layout& l : std::vector<Layout>{{{1}, 1, 1, 64},
                                             {{63}, 2, 2, 8},
                                             {{65, 1, 200}, 3, 1, 16},
                                             {{1, 1, 130, 128, 7}, 4, 2, 64},
                                             {{200}, 7, 1, 80},
                                             {{129}, 2, 1, 128},
                                             {{70}, 2, 1, 256},
                                             {{40}, 1, 1, 512},
                                             {{33}, 5, 5, 5},
                                             {{1000}, 1, 1, 64}})
    check_against_oracle(ctx, Problem(l, DType::f32), Math::f32, DType::f32);
}

TEST_CASE("attention agrees with the oracle: window and softcap") {
  Context ctx({.num_threads = 2});
  for (const Variant& variant : kVariants)
    for (const Layout& l : std::vector<Layout>{{{1}, 1, 1, 64},
                                               {{65, 1, 200}, 6, 2, 16},
                                               {{300, 5}, 3, 1, 64},
                                               {{0, 140, 33}, 2, 1, 72},
                                               {{150}, 2, 1, 192}})
      check_against_oracle(ctx, Problem(with(l, variant), DType::f32), Math::f32, DType::f32);
}

TEST_CASE("attention agrees with the oracle: more keys than queries, with a window and a softcap") {
  Context ctx({.num_threads = 2});
  for (const Variant& variant : kVariants)
    for (const int64_t new_queries : {1, 5, 70}) {
      const Problem p(with({{200, 70, 131}, 6, 2, 24}, variant), DType::f32);
      // The last queries of each sequence, against all of its keys.
      std::vector<int64_t> lengths(3, new_queries);
      const std::vector<int32_t> cu_q = offsets(lengths);
      Tensor q(DType::f32, cu_q.back(), p.q.cols()), o(DType::f32, cu_q.back(), p.q.cols());
      Tensor lse(DType::f32, cu_q.back(), 6);
      for (size_t s = 0; s < 3; ++s)
        std::memcpy(q.data<float>() + cu_q[s] * q.cols(), p.q.data<float>() + (p.cu[s + 1] - new_queries) * q.cols(),
                    static_cast<size_t>(new_queries * q.cols()) * sizeof(float));
      AttentionShape shape = p.shape();
      shape.cu_q = cu_q.data();
      attention(ctx, {shape, q, p.k, p.v, o, lse});
      reference::AttentionShape want_shape = p.reference_shape();
      want_shape.cu_q = cu_q;
      const auto want = reference::attention(want_shape, values(q), values(p.k), values(p.v));
      CAPTURE(describe(p.layout));
      CAPTURE(new_queries);
      CHECK(row_error(o, want.o) <= kF32Forward);
      CHECK(row_error(lse, want.lse) <= kF32Forward);
    }
}

TEST_CASE("attention: a window that holds every key gives the numbers of none") {
  Context ctx({.num_threads = 2});
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const float softcap : {0.0f, 2.0f}) {
      const Layout l{{150, 1, 260}, 6, 2, 64, 0, softcap};
      const Result want = run(ctx, Problem(l, dtype));
      for (const int64_t window : {int64_t{260}, int64_t{1000}, INT64_MAX}) {
        const Result got = run(ctx, Problem(with(l, {window, softcap}), dtype));
        CHECK(same_bits(got.o, want.o));
        CHECK(same_bits(got.lse, want.lse));
        CHECK(same_bits(got.dq, want.dq));
        CHECK(same_bits(got.dk, want.dk));
        CHECK(same_bits(got.dv, want.dv));
      }
      const Result narrow = run(ctx, Problem(with(l, {259, softcap}), dtype));
      CHECK(!same_bits(narrow.o, want.o));
    }
}

TEST_CASE("attention agrees with the oracle, bf16") {
  Context ctx({.num_threads = 2});
  for (const Math math : {Math::f32, Math::bf16})
    for (const DType gradient : {DType::f32, DType::bf16})
      for (const Layout& l :
           std::vector<Layout>{{{1}, 2, 1, 64}, {{65, 1, 140}, 6, 2, 64}, {{50, 33}, 3, 1, 80}, {{33}, 2, 2, 9}})
        check_against_oracle(ctx, Problem(l, DType::bf16), math, gradient);
}

TEST_CASE("attention agrees with the oracle on every tier of this machine") {
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16}) {
    if (isa > best_isa()) {
      MESSAGE("no ", std::string(name_of(isa)), " here");
      continue;
    }
    Context ctx({.num_threads = 1, .isa = isa});
    for (const Math math : {Math::f32, Math::bf16})
      for (const Variant& variant : {Variant{0, 0}, Variant{33, 2}})
        check_against_oracle(ctx, Problem(with({{65, 1, 140}, 6, 2, 24}, variant), DType::f32), math, DType::f32);
  }
}

TEST_CASE("attention: results do not depend on the number of threads") {
  for (const auto& [dtype, variant] :
       {std::pair{DType::f32, Variant{0, 0}}, {DType::bf16, {0, 0}}, {DType::f32, {45, 3}}}) {
    const Problem p(with({{150, 1, 129, 2, 300}, 6, 2, 64}, variant), dtype);
    Context one({.num_threads = 1});
    const Result want = run(one, p);
    for (const int threads : {2, 3, 7}) {
      Context ctx({.num_threads = threads});
      const Result got = run(ctx, p);
      CAPTURE(threads);
      CHECK(same_bits(got.o, want.o));
      CHECK(same_bits(got.lse, want.lse));
      CHECK(same_bits(got.dq, want.dq));
      CHECK(same_bits(got.dk, want.dk));
      CHECK(same_bits(got.dv, want.dv));
    }
  }
}

TEST_CASE("attention: a packed sequence has the numbers that it has alone") {
  Context ctx({.num_threads = 2});
  for (const auto& [dtype, variant] :
       {std::pair{DType::f32, Variant{0, 0}}, {DType::bf16, {0, 0}}, {DType::f32, {45, 3}}}) {
    const Problem p(with({{5, 1, 200, 63, 1, 130}, 3, 1, 64}, variant), dtype);
    const Result packed = run(ctx, p);
    for (size_t s = 0; s + 1 < p.cu.size(); ++s) {
      const int64_t first = p.cu[s], n = p.layout.lengths[s];
      Problem alone(with({{n}, 3, 1, 64}, variant), dtype);
      const auto take = [&](Tensor& to, const ConstTensorView& from) {
        std::memcpy(to.view().data, from.row_range(first, n).data, to.bytes());
      };
      take(alone.q, p.q);
      take(alone.k, p.k);
      take(alone.v, p.v);
      take(alone.dout, p.dout);
      const Result got = run(ctx, alone);
      CAPTURE(s);
      const auto same = [&](const ConstTensorView& a, const ConstTensorView& b) {
        return same_bits(a, b.row_range(first, n));
      };
      CHECK(same(got.o, packed.o));
      CHECK(same(got.lse, packed.lse));
      CHECK(same(got.dq, packed.dq));
      CHECK(same(got.dk, packed.dk));
      CHECK(same(got.dv, packed.dv));
    }
  }
}

TEST_CASE("attention: decoding with a cache has the numbers of the prefill") {
  for (const auto& [dtype, variant] :
       {std::pair{DType::f32, Variant{0, 0}}, {DType::bf16, {0, 0}}, {DType::f32, {45, 3}}, {DType::f32, {130, 0}}})
    for (const int64_t heads : {2, 6, 40}) {
      // Two sequences; each call appends `step` queries to both, their keys lying in one cache.
      const int64_t n = heads == 40 ? 40 : 270, d = 64;
      const Problem p(with({{n, n}, heads, 2, d}, variant), dtype);
      Context ctx({.num_threads = 2});
      const Result whole = run(ctx, p);
      for (const int64_t step : {1, 3, 100}) {
        for (int64_t done = step == 1 ? std::max<int64_t>(0, n - 150) : 0; done + step <= n; done += step) {
          const int64_t seen = done + step;
          const std::vector<int32_t> cu_q = offsets({step, step}), cu_k = offsets({seen, seen});
          Tensor q(dtype, 2 * step, heads * d), k(dtype, 2 * seen, 2 * d), v(dtype, 2 * seen, 2 * d);
          Tensor o(dtype, 2 * step, heads * d), lse(DType::f32, 2 * step, heads);
          for (int64_t s = 0; s < 2; ++s) {
            const auto copy = [&](Tensor& to, int64_t at, const ConstTensorView& from, int64_t row, int64_t rows) {
              const size_t bytes = static_cast<size_t>(to.cols()) * size_of(dtype);
              std::memcpy(static_cast<char*>(to.view().data) + static_cast<size_t>(at) * bytes,
                          from.row_range(row, rows).data, static_cast<size_t>(rows) * bytes);
            };
            copy(q, s * step, p.q, s * n + done, step);
            copy(k, s * seen, p.k, s * n, seen);
            copy(v, s * seen, p.v, s * n, seen);
          }
          AttentionShape shape = p.shape();
          shape.cu_q = cu_q.data();
          shape.cu_k = cu_k.data();
          attention(ctx, {shape, q, k, v, o, lse});
          bool same = true;
          for (int64_t s = 0; s < 2; ++s) {
            const auto part = [&](const ConstTensorView& x, int64_t row) { return x.row_range(row, step); };
            same &= same_bits(part(o, s * step), part(whole.o, s * n + done));
            same &= same_bits(part(lse, s * step), part(whole.lse, s * n + done));
          }
          CAPTURE(done);
          CAPTURE(step);
          CHECK(same);
        }
      }
    }
}

TEST_CASE("attention: later keys and other sequences leave a row as it is") {
  Context ctx({.num_threads = 2});
  Problem p({{100, 50}, 2, 1, 16}, DType::f32);
  const Result before = run(ctx, p);
  const int64_t changed = 70;
  for (int64_t i = 0; i < 16; ++i) {
    p.k.data<float>()[changed * 16 + i] += 1.0f;
    p.v.data<float>()[changed * 16 + i] -= 1.0f;
  }
  const Result after = run(ctx, p);
  const auto rows = [](const ConstTensorView& x, int64_t first, int64_t n) { return x.row_range(first, n); };
  CHECK(same_bits(rows(after.o, 0, changed), rows(before.o, 0, changed)));
  CHECK(same_bits(rows(after.dq, 0, changed), rows(before.dq, 0, changed)));
  for (int64_t r = changed; r < 100; ++r) CHECK(!same_bits(rows(after.o, r, 1), rows(before.o, r, 1)));
  CHECK(same_bits(rows(after.o, 100, 50), rows(before.o, 100, 50)));
  CHECK(same_bits(rows(after.dq, 100, 50), rows(before.dq, 100, 50)));
  CHECK(same_bits(rows(after.dk, 100, 50), rows(before.dk, 100, 50)));
  CHECK(same_bits(rows(after.dv, 100, 50), rows(before.dv, 100, 50)));
}

TEST_CASE("attention: rows beyond the window leave a row as it is, and tiles of them are not read") {
  Context ctx({.num_threads = 2});
  Problem p({{400}, 2, 1, 16, 40}, DType::f32);
  const Result before = run(ctx, p);
  for (int64_t i = 0; i < 16; ++i) p.k.data<float>()[100 * 16 + i] += 1.0f;
  const Result after = run(ctx, p);
  for (int64_t r = 0; r < 400; ++r) {
    const auto row = [&](const ConstTensorView& x) { return x.row_range(r, 1); };
    CHECK(same_bits(row(after.o), row(before.o)) == (r < 100 || r >= 140));
    CHECK(same_bits(row(after.dq), row(before.dq)) == (r < 100 || r >= 140));
    CHECK(same_bits(row(after.dk), row(before.dk)) == (r + 40 <= 100 || r >= 140));
  }
  // A zero weight times NaN would be NaN: tiles have at most 128 keys, so key 0 is in none that row 256 sees.
  for (const int64_t row : {0, 399}) {
    for (int64_t i = 0; i < 16; ++i) p.v.data<float>()[row * 16 + i] = p.k.data<float>()[row * 16 + i] = std::nanf("");
    for (int64_t i = 0; i < 32; ++i) p.dout.data<float>()[row * 32 + i] = std::nanf("");
  }
  const Result bad = run(ctx, p);
  for (const Tensor* x : {&bad.o, &bad.dq, &bad.dk, &bad.dv})
    for (const double y : values(static_cast<ConstTensorView>(*x).row_range(256, 64))) CHECK(!std::isnan(y));
}

TEST_CASE("attention: slices of one fused matrix serve as q, k, v and gradients") {
  Context ctx({.num_threads = 2});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Problem p({{90, 45}, 4, 2, 16}, dtype);
    const Result want = run(ctx, p, Math::f32, dtype);
    const int64_t rows = p.q.rows();
    Tensor fused(dtype, rows, 128 + 3), gradient(dtype, rows, 128 + 5), out(dtype, rows, 64 + 9);
    const auto fill = [&](const TensorView& to, const ConstTensorView& from) {
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to.row_range(r, 1).data, from.row_range(r, 1).data, static_cast<size_t>(to.cols) * size_of(dtype));
    };
    const TensorView f = fused, g = gradient, o = static_cast<TensorView>(out).columns(4, 64);
    fill(f.columns(0, 64), p.q);
    fill(f.columns(64, 32), p.k);
    fill(f.columns(96, 32), p.v);
    Tensor lse(DType::f32, rows, 4), delta(DType::f32, rows, 4);
    const auto q = f.columns(0, 64), k = f.columns(64, 32), v = f.columns(96, 32);
    attention(ctx, {p.shape(), q, k, v, o, lse});
    attention_backward(
        ctx, {p.shape(), q, k, v, o, lse, p.dout, delta, g.columns(0, 64), g.columns(64, 32), g.columns(96, 32)});
    CHECK(same_bits(o, want.o));
    CHECK(same_bits(g.columns(0, 64), want.dq));
    CHECK(same_bits(g.columns(64, 32), want.dk));
    CHECK(same_bits(g.columns(96, 32), want.dv));
    for (int64_t r = 0; r < rows; ++r)
      for (const ConstTensorView& rest :
           {ConstTensorView(g.columns(128, 5)), ConstTensorView(out.view().columns(68, 5))})
        for (const double x : values(rest.row_range(r, 1))) CHECK(x == 0);
  }
}

TEST_CASE("attention: scores far apart, and a NaN, come out as they should") {
  Context ctx({.num_threads = 1});
  Problem p({{300}, 1, 1, 8}, DType::f32);
  for (int64_t i = 0; i < 300 * 8; ++i) {
    p.q.data<float>()[i] *= 40.0f;
    p.k.data<float>()[i] *= 40.0f;
  }
  const auto shape = p.reference_shape();
  const auto want = reference::attention(shape, values(p.q), values(p.k), values(p.v));
  const Result got = run(ctx, p);
  // Scores up to ~1e4 have a rounding error of ~1e-3 each.
  CHECK(row_error(got.o, want.o) <= 1e-2);
  CHECK(row_error(got.lse, want.lse) <= 1e-6);
  for (const double x : values(got.dq)) CHECK(std::isfinite(x));

  p.q.data<float>()[20 * 8 + 3] = std::nanf("");
  const Result bad = run(ctx, p);
  for (int64_t r = 0; r < 300; ++r)
    for (const double x : values(static_cast<ConstTensorView>(bad.o).row_range(r, 1)))
      CHECK(std::isnan(x) == (r == 20));
}

TEST_CASE("attention: empty sequences and no rows at all") {
  Context ctx({.num_threads = 2});
  const Problem p({{0, 20, 0, 0, 3, 0}, 2, 1, 8}, DType::f32);
  const Problem dense({{20, 3}, 2, 1, 8}, DType::f32);
  const Result a = run(ctx, p), b = run(ctx, dense);
  CHECK(same_bits(a.o, b.o));
  CHECK(same_bits(a.dk, b.dk));
  const Problem none({{}, 2, 1, 8}, DType::f32);
  CHECK_NOTHROW(run(ctx, none));
}

TEST_CASE("attention: wrong arguments are refused with words") {
  Context ctx({.num_threads = 1});
  const Problem p({{4, 6}, 2, 1, 8}, DType::f32);
  Tensor o(DType::f32, 10, 16), lse(DType::f32, 10, 2), half(DType::bf16, 10, 8);
  const auto message = [&](auto change) {
    AttentionArgs args{p.shape(), p.q, p.k, p.v, o, lse};
    change(args);
    try {
      attention(ctx, args);
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::internal);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::vector<int32_t> falling = {0, 6, 4, 10}, shifted = {1, 4, 10}, fewer = {0, 5, 10}, more = {0, 4, 9};
  using A = AttentionArgs&;
  CHECK(message([](A) {}) == "accepted");
  CHECK(message([&](A a) { a.shape.kv_heads = 3; }).find("multiple of kv_heads") != std::string::npos);
  CHECK(message([&](A a) { a.shape.head_dim = 4; }).find("q has shape [10, 16], expected [10, 8]") !=
        std::string::npos);
  CHECK(message([&](A a) { a.shape.head_dim = 513; }).find("head_dim") != std::string::npos);
  CHECK(message([&](A a) { a.shape.window = -1; }) == "attention: window must be at least 0, got -1");
  CHECK(message([&](A a) { a.shape.softcap = -2; }).find("softcap must be finite and at least 0, got -2") !=
        std::string::npos);
  CHECK(message([&](A a) { a.shape.softcap = INFINITY; }).find("softcap must be finite") != std::string::npos);
  CHECK(message([&](A a) { a.k = half; }).find("k has dtype bf16, expected f32") != std::string::npos);
  CHECK(message([&](A a) { a.shape.cu_q = nullptr; }).find("cu_q is null") != std::string::npos);
  CHECK(message([&](A a) { a.shape.cu_q = shifted.data(); }).find("cu_q covers rows 1 .. 10") != std::string::npos);
  CHECK(message([&](A a) { a.shape.cu_k = more.data(); }).find("cu_k covers rows 0 .. 9") != std::string::npos);
  CHECK(message([&](A a) { a.shape.cu_q = fewer.data(); }).find("sequence 0 has 5 queries and 4 keys") !=
        std::string::npos);
  CHECK(message([&](A a) {
          a.shape.cu_q = a.shape.cu_k = falling.data();
          a.shape.num_seqs = 3;
        }).find("sequence 1 has -2 queries") != std::string::npos);

  Tensor delta(DType::f32, 10, 2), dq(DType::f32, 10, 16), dk(DType::f32, 10, 8), dv(DType::f32, 10, 8);
  AttentionBackwardArgs args{p.shape(), p.q, p.k, p.v, o, lse, p.dout, delta, dq, dk, dv};
  args.shape.cu_k = fewer.data();
  CHECK_THROWS_WITH_AS(attention_backward(ctx, args), doctest::Contains("sequence 1 has 6 queries and 5 keys"), Error);
}
