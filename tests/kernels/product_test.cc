// SPDX-License-Identifier: Apache-2.0
// The matrix product against a double-precision reference, the row contract (==), and the entry's checks.
#include "kernels/product.h"

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "kernels/product_cases.h"
#include "kernels/tolerance.h"

using namespace bantam;
using namespace bantam::test;

namespace {

std::vector<Isa> tiers() {
  std::vector<Isa> t;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16})
    if (isa <= best_isa()) t.push_back(isa);
  return t;
}
Context& context(Isa isa, int threads = 2) {
  static std::map<std::pair<Isa, int>, std::unique_ptr<Context>> all;
  auto& c = all[{isa, threads}];
  if (!c) {
    ContextOptions o;
    o.num_threads = threads;
    o.isa = isa;
    c = std::make_unique<Context>(o);
  }
  return *c;
}

// Each of the k + few additions and products rounds by at most 2^-24 of the sum of magnitudes; a tier with bf16
// products also rounds f32 operands by 2^-8 each. A bf16 result rounds once more.
double bound(const Reference& r, int64_t k, bool bf16_operands, bool bf16_result) {
  const double eps = std::ldexp(1.0, -24);
  double b = r.magnitude * static_cast<double>(k + 8) * eps;
  if (bf16_operands) b += r.magnitude * (2.0 * tolerance::kBf16 + tolerance::kBf16 * tolerance::kBf16);
  if (bf16_result) b += (std::fabs(r.sum) + b) * std::ldexp(1.0, -8);
  return b + 1e-30;
}

float element(const TensorView& t, int64_t i, int64_t j) {
  return t.dtype == DType::bf16 ? to_f32(t.row<bf16>(i)[j]) : t.row<float>(i)[j];
}

struct Output {
  std::vector<float> f32;
  std::vector<bf16> half;
  TensorView view;
  Output(DType t, int64_t m, int64_t n, int64_t gap = 0) {
    const auto size = static_cast<size_t>(m * (n + gap));
    if (t == DType::f32) {
      f32.resize(size);
      for (float& x : f32) x = uniform();
    } else {
      half.resize(size);
      for (bf16& x : half) x = to_bf16(uniform());
    }
    view = TensorView(t == DType::f32 ? static_cast<void*>(f32.data()) : half.data(), t, m, n, n + gap);
  }
};

bool same(const TensorView& x, const TensorView& y) {
  if (x.rows != y.rows || x.cols != y.cols || x.dtype != y.dtype) return false;
  for (int64_t i = 0; i < x.rows; ++i)
    if (std::memcmp(static_cast<const char*>(x.data) + static_cast<size_t>(i * x.stride) * size_of(x.dtype),
                    static_cast<const char*>(y.data) + static_cast<size_t>(i * y.stride) * size_of(y.dtype),
                    static_cast<size_t>(x.cols) * size_of(x.dtype)) != 0)
      return false;
  return true;
}

}  // namespace

TEST_CASE("one term equals the double reference in every format, layout and odd shape") {
  const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 63, 65, 100, 129};
  const WeightFormat formats[] = {WeightFormat::f32, WeightFormat::bf16, WeightFormat::nf4};
  const auto pick = [&](const auto& list) { return list[rng()() % std::size(list)]; };
  for (const Isa isa : tiers()) {
    const int rounds = isa == Isa::scalar ? 150 : 400;
    for (int round = 0; round < rounds; ++round) {
      const int64_t m = pick(sizes), n = pick(sizes), k = round % 8 == 0 ? 513 + pick(sizes) * 5 : pick(sizes);
      const WeightFormat af = formats[rng()() % 2], bf = pick(formats);
      const bool nn = rng()() % 2, transposed = rng()() % 2, nested = rng()() % 2;
      const int64_t gap = rng()() % 2 ? 3 : 0;
      const Math math = rng()() % 2 ? Math::bf16 : Math::f32;
      const DType ct = rng()() % 2 ? DType::bf16 : DType::f32;
      CAPTURE(name_of(isa));
      CAPTURE(std::string(name_of(af)) + " x " + name_of(bf));
      CAPTURE(m);
      CAPTURE(n);
      CAPTURE(k);
      CAPTURE(nn);
      CAPTURE(transposed);
      CAPTURE(static_cast<int>(math));
      const Term term(m, n, k, af, bf, nn, transposed, nested, gap);
      Output c(ct, m, n, gap);
      const Output before = c;
      ProductArgs p;
      p.terms[0] = term.view();
      p.c = c.view;
      p.math = math;
      product(context(isa), p);
      const bool rounds_operands = isa == Isa::avx512bf16 && math == Math::bf16;
      bool ok = true;
      for (int64_t i = 0; i < m && ok; ++i)
        for (int64_t j = 0; j < n && ok; ++j) {
          Reference r;
          r.add(term, i, j, math);
          const double error = std::fabs(static_cast<double>(element(c.view, i, j)) - r.sum);
          ok = error <= bound(r, k, rounds_operands, ct == DType::bf16);
          if (!ok) {
            CAPTURE(i);
            CAPTURE(j);
            CHECK_MESSAGE(ok, "got ", element(c.view, i, j), ", expected ", r.sum);
          }
        }
      for (int64_t i = 0; i < m; ++i)  // between the rows nothing is written
        for (int64_t j = n; j < n + gap && i * (n + gap) + j < m * (n + gap); ++j) {
          const auto at = static_cast<size_t>(i * (n + gap) + j);
          REQUIRE((ct == DType::f32 ? c.f32[at] == before.f32[at] : c.half[at].bits == before.half[at].bits));
        }
      REQUIRE(ok);
    }
  }
}

TEST_CASE("two terms, alpha, bias, residual and mode add") {
  for (const Isa isa : tiers())
    for (const DType ct : {DType::f32, DType::bf16})
      for (int flags = 0; flags < 16; ++flags) {
        const bool with_bias = flags & 1, with_residual = flags & 2, in_place = flags & 4, add = flags & 8;
        if (in_place && !with_residual) continue;
        const int64_t m = 37, n = 83, k1 = 200, k2 = 16;
        const Term base(m, n, k1, WeightFormat::bf16, WeightFormat::nf4, false, false, true);
        const Term low_rank(m, n, k2, WeightFormat::f32, WeightFormat::f32, false, false);
        Output c(ct, m, n, 5), residual(DType::bf16, m, n, 2);
        const Output before = c;
        std::vector<float> bias(static_cast<size_t>(n));
        for (float& x : bias) x = uniform();
        ProductArgs p;
        p.num_terms = 2;
        p.terms[0] = base.view();
        p.terms[1] = low_rank.view();
        p.alpha = 0.37f;
        if (with_bias) p.bias = bias.data();
        if (with_residual) p.residual = in_place ? ConstTensorView(c.view) : ConstTensorView(residual.view);
        p.c = c.view;
        p.mode = add ? GradMode::add : GradMode::write;
        product(context(isa), p);
        double worst = 0;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            const TensorView old(
                const_cast<void*>(ct == DType::f32 ? static_cast<const void*>(before.f32.data()) : before.half.data()),
                ct, m, n, n + 5);
            Reference r;
            r.add(base, i, j, Math::f32);
            r.add(low_rank, i, j, Math::f32);
            r.sum *= 0.37f, r.magnitude *= 0.37f;
            const auto plus = [&](float x) { r.sum += x, r.magnitude += std::fabs(x); };
            if (with_bias) plus(bias[static_cast<size_t>(j)]);
            if (with_residual) plus(in_place ? element(old, i, j) : element(residual.view, i, j));
            if (add) plus(element(old, i, j));
            const double error = std::fabs(static_cast<double>(element(c.view, i, j)) - r.sum);
            worst = std::max(worst, error / bound(r, k1 + k2, false, ct == DType::bf16));
          }
        CAPTURE(name_of(isa));
        CAPTURE(flags);
        CHECK(worst <= 1);
      }
}

TEST_CASE("a row is the same alone and among a thousand, on any number of threads") {
  for (const Isa isa : tiers())
    for (const Math math : {Math::f32, Math::bf16})
      for (const bool nn : {false, true})
        for (const DType ct : {DType::f32, DType::bf16}) {
          const int64_t m = isa == Isa::scalar ? 130 : 1000, n = 83, k = isa == Isa::scalar ? 90 : 600, r = 8;
          const Term base(m, n, k, WeightFormat::bf16, WeightFormat::nf4, nn, false);
          const Term low_rank(m, n, r, WeightFormat::f32, WeightFormat::bf16, nn, false);
          const auto run = [&](int threads, int64_t row, int64_t rows, const TensorView& c) {
            ProductArgs p;
            p.num_terms = 2;
            p.terms[0] = base.view();
            p.terms[1] = low_rank.view();
            for (ProductTerm& t : p.terms) t.a = t.a.row_range(row, rows);
            p.c = c;
            p.math = math;
            product(context(isa, threads), p);
          };
          CAPTURE(name_of(isa));
          CAPTURE(nn);
          Output all(ct, m, n);
          run(1, 0, m, all.view);
          for (const int threads : {2, 3, 7}) {
            Output c(ct, m, n);
            run(threads, 0, m, c.view);
            CHECK(same(c.view, all.view));
          }
          for (const int64_t rows : {1, 6, 7, 63, 65}) {
            const int64_t at = static_cast<int64_t>(rng()() % static_cast<uint64_t>(m - rows));
            Output c(ct, rows, n);
            run(2, at, rows, c.view);
            CHECK(same(c.view, all.view.row_range(at, rows)));
          }
        }
}

TEST_CASE("a column is the same whatever its neighbours") {
  for (const Isa isa : tiers()) {
    const int64_t m = 30, n = 150, k = 77;
    const Term whole(m, n, k, WeightFormat::f32, WeightFormat::f32, false, true);
    Output all(DType::f32, m, n);
    ProductArgs p;
    p.terms[0] = whole.view();
    p.c = all.view;
    product(context(isa), p);
    for (const int64_t cols : {1, 4, 9, 17, 40}) {
      const int64_t at = static_cast<int64_t>(rng()() % static_cast<uint64_t>(n - cols));
      Output c(DType::f32, m, cols);
      p.terms[0].b = WeightView(whole.b.tensor().row_range(at, cols));
      p.c = c.view;
      product(context(isa), p);
      CAPTURE(name_of(isa));
      CAPTURE(cols);
      CHECK(same(c.view, all.view.columns(at, cols)));
    }
  }
}

TEST_CASE("sums over tokens are the same on any number of threads") {
  for (const Isa isa : tiers()) {
    const int64_t tokens = isa == Isa::scalar ? 150 : 1000, out = 200, r = 8;
    const Term db(out, r, tokens, WeightFormat::bf16, WeightFormat::f32, true, true);
    Output one(DType::f32, out, r);
    const Output start = one;
    for (const int threads : {1, 2, 3, 7}) {
      Output c = start;
      c.view.data = c.f32.data();
      ProductArgs p;
      p.terms[0] = db.view();
      p.c = threads == 1 ? one.view : c.view;
      p.mode = GradMode::add;
      product(context(isa, threads), p);
      if (threads > 1) CHECK(same(c.view, one.view));
    }
  }
}

TEST_CASE("the scalar tier and AVX2 compute the same numbers") {
  if (best_isa() < Isa::avx2) {
    MESSAGE("skipped: no AVX2 here");
    return;
  }
  for (const Math math : {Math::f32, Math::bf16}) {
    const Term t(50, 70, 333, WeightFormat::bf16, WeightFormat::nf4, false, false, true);
    Output a(DType::bf16, 50, 70), b(DType::bf16, 50, 70);
    ProductArgs p;
    p.terms[0] = t.view();
    p.math = math;
    p.c = a.view;
    product(context(Isa::scalar), p);
    p.c = b.view;
    product(context(Isa::avx2), p);
    CHECK(same(a.view, b.view));
  }
}

TEST_CASE("an empty reduction gives bias and residual, and empty outputs are left alone") {
  for (const DType ct : {DType::f32, DType::bf16}) {
    Matrix a(WeightFormat::f32, 3, 1), b(WeightFormat::f32, 4, 1);
    Output c(ct, 3, 4);
    ProductArgs p;
    p.terms[0].a = ConstTensorView(a.view.data, DType::f32, 3, 0);
    p.terms[0].b = WeightView(ConstTensorView(b.view.data, DType::f32, 4, 0));
    p.c = c.view;
    product(context(best_isa()), p);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 4; ++j) CHECK(element(c.view, i, j) == 0);
    const float bias[4] = {1, 2, 3, 4};
    p.bias = bias;
    product(context(best_isa()), p);
    CHECK(element(c.view, 2, 3) == 4);
    p.terms[0].a.rows = p.c.rows = 0;
    CHECK_NOTHROW(product(context(best_isa()), p));
  }
}

TEST_CASE("wrong arguments are named with what was expected") {
  Matrix a(WeightFormat::f32, 4, 8), b(WeightFormat::f32, 5, 8), q(WeightFormat::nf4, 5, 8);
  Output c(DType::f32, 4, 5);
  const auto good = [&] {
    ProductArgs p;
    p.terms[0].a = a.tensor();
    p.terms[0].b = b.view;
    p.c = c.view;
    return p;
  };
  const auto message = [&](const ProductArgs& p) {
    try {
      product(context(best_isa()), p);
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::internal);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(message(good()) == "no error");
  ProductArgs p = good();
  p.num_terms = 3;
  CHECK(message(p) == "product: num_terms is 3, expected 1 or 2");
  p = good();
  p.terms[0].a.data = nullptr;
  CHECK(message(p) == "product: terms[0].a is null");
  p = good();
  p.terms[0].a.cols = 7;
  CHECK(message(p) == "product: terms[0].a has shape [4, 7], expected [4, 8]");
  p = good();
  p.terms[0].layout = BLayout::nn;
  CHECK(message(p) == "product: terms[0].b has shape [5, 8], expected [5, 5]");
  p = good();
  p.terms[0].a.dtype = DType::i32;
  CHECK(message(p) == "product: terms[0].a has dtype i32, expected f32 or bf16");
  p = good();
  p.terms[0].b.stride = 7;
  CHECK(message(p) == "product: terms[0].b has row stride 7, expected at least its 8 columns");
  p = good();
  p.terms[0].b = q.view;
  p.terms[0].b.absmax = nullptr;
  CHECK(message(p).find("nf4 without scales") != std::string::npos);
  p = good();
  p.num_terms = 2;
  CHECK(message(p) == "product: terms[1].a is null");
  p = good();
  p.residual = ConstTensorView(c.view.data, DType::f32, 4, 4);
  CHECK(message(p) == "product: residual has shape [4, 4], expected [4, 5]");
  p = good();
  p.c.data = nullptr;
  CHECK(message(p) == "product: c is null");
}
