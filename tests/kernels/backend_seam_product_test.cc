// SPDX-License-Identifier: Apache-2.0
// The product on every backend: the same cases, the same tolerances.
#include <optional>

#include "kernels/product.h"
#include "tests/kernels/device_harness.h"

using namespace bantam;
using namespace bantam::test;

namespace {

enum class Weight { f32, bf16, nf4, nf4_nested };
constexpr Weight kWeights[] = {Weight::f32, Weight::bf16, Weight::nf4, Weight::nf4_nested};
constexpr DType kTypes[] = {DType::f32, DType::bf16};

// One term on the device, with its operands as the reference sees them.
struct Term {
  int64_t m, n, k;
  std::vector<float> a, b;  // dense, [M, K] and [K, N]
  double operand_eps = 0;   // relative error that the contract allows for rounded operands
  std::optional<DeviceMatrix> device_a, device_b;
  std::optional<Nf4Matrix> nf4;
  std::optional<DeviceNf4> device_nf4;
  ProductTerm term;

  Term(Context& ctx, int64_t rows, int64_t cols, int64_t depth, DType a_type, Weight weight, BLayout layout,
       bool a_transposed, Math math, unsigned seed)
      : m(rows), n(cols), k(depth) {
    const auto stored_a = rounded(random_values(m * k, seed), a_type);
    const int64_t a_rows = a_transposed ? k : m, a_cols = a_transposed ? m : k;
    device_a.emplace(ctx, a_type, a_rows, a_cols, stored_a, a_cols + 3, 1);
    const int64_t b_rows = layout == BLayout::nt ? n : k, b_cols = layout == BLayout::nt ? k : n;
    std::vector<float> stored_b;
    if (weight == Weight::f32 || weight == Weight::bf16) {
      const DType t = weight == Weight::f32 ? DType::f32 : DType::bf16;
      stored_b = rounded(random_values(b_rows * b_cols, seed + 1), t);
      device_b.emplace(ctx, t, b_rows, b_cols, stored_b, b_cols + 2);
      term.b = *device_b;
    } else {
      nf4.emplace(b_rows, b_cols, weight == Weight::nf4_nested, seed + 1);
      device_nf4.emplace(ctx, *nf4);
      term.b = *device_nf4;
      stored_b = rounded(nf4->values, math == Math::bf16 ? DType::bf16 : DType::f32);
    }
    if (math == Math::bf16)
      operand_eps = (a_type == DType::f32 ? kBf16Eps : 0) + (weight == Weight::f32 ? kBf16Eps : 0);
    term.a = *device_a;
    term.layout = layout;
    term.a_transposed = a_transposed;
    a = transposed(stored_a, a_rows, a_cols, a_transposed);
    b = transposed(stored_b, b_rows, b_cols, layout == BLayout::nt);
  }
  static std::vector<float> transposed(const std::vector<float>& v, int64_t rows, int64_t cols, bool yes) {
    if (!yes) return v;
    std::vector<float> r(v.size());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) r[static_cast<size_t>(j * rows + i)] = v[static_cast<size_t>(i * cols + j)];
    return r;
  }
  // Adds alpha * a b, and the error that a sum in f32 may have.
  void add_to(double alpha, std::vector<double>& sum, std::vector<double>& bound) const {
    const double eps = (8 + static_cast<double>(k) / 8) * kF32Eps + operand_eps;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double s = 0, magnitude = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double p = static_cast<double>(a[static_cast<size_t>(i * k + l)]) * b[static_cast<size_t>(l * n + j)];
          s += p;
          magnitude += std::fabs(p);
        }
        sum[static_cast<size_t>(i * n + j)] += alpha * s;
        bound[static_cast<size_t>(i * n + j)] += std::fabs(alpha) * magnitude * eps;
      }
  }
};

struct Extras {
  float alpha = 1.0f;
  bool bias = false;
  GradMode mode = GradMode::write;
  enum { none, apart, is_c } residual = none;
};

void check_product(Context& ctx, const std::vector<const Term*>& terms, DType c_type, Math math, const Extras& e) {
  const int64_t m = terms[0]->m, n = terms[0]->n;
  const auto count = static_cast<size_t>(m * n);
  const auto old = rounded(random_values(m * n, 90), c_type), res = rounded(random_values(m * n, 91), DType::bf16);
  const auto bias = random_values(n, 92);
  std::vector<double> want(count), bound(count);
  for (const Term* t : terms) t->add_to(e.alpha, want, bound);
  // A device may round a bf16 c after the second term, which comes first, and what it starts from.
  std::vector<double> between(count), ignored(count);
  if (!ctx.backend().host_memory && c_type == DType::bf16 && terms.size() == 2)
    terms[1]->add_to(e.alpha, between, ignored);
  for (size_t i = 0; i < count; ++i) {
    double extra = 0, magnitude = 0;
    const auto plus = [&](double v) {
      extra += v;
      magnitude += std::fabs(v);
    };
    if (e.bias) {
      plus(bias[i % static_cast<size_t>(n)]);
      // A device may round the bias of a bf16 c as well.
      if (!ctx.backend().host_memory) bound[i] += eps_of(c_type) * std::fabs(bias[i % static_cast<size_t>(n)]);
    }
    if (e.mode == GradMode::add) plus(old[i]);
    if (e.residual == Extras::is_c) plus(old[i]);
    if (e.residual == Extras::apart) plus(res[i]);
    bound[i] += 8 * kF32Eps * (magnitude + std::fabs(want[i]));
    if (between[i] != 0) bound[i] += eps_of(c_type) * (std::fabs(between[i]) + magnitude);
    want[i] += extra;
    bound[i] += eps_of(c_type) * (std::fabs(want[i]) + bound[i]);
  }
  // Nothing says that c is aligned to more than its elements.
  const DeviceMatrix c(ctx, c_type, m, n, old, n + 5, 1), r(ctx, DType::bf16, m, n, res, n + 1);
  const DeviceVector<float> device_bias(ctx, bias);
  ProductArgs args;
  args.num_terms = static_cast<int>(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) args.terms[i] = terms[i]->term;
  args.alpha = e.alpha;
  args.bias = e.bias ? device_bias.get() : nullptr;
  if (e.residual == Extras::is_c) args.residual = c;
  if (e.residual == Extras::apart) args.residual = r;
  args.c = c;
  args.mode = e.mode;
  args.math = math;
  product(ctx, args);
  check_close(c.host(), want, bound);
}

TEST_CASE("product: operand types, layouts and shapes") {
  constexpr struct { int64_t m, n, k; } kShapes[] = {{1, 5, 64}, {33, 40, 65}, {9, 70, 128}};
  on_each_backend([&](Context& ctx) {
    for (const auto& s : kShapes)
      for (const DType a_type : kTypes)
        for (const Weight w : kWeights)
          for (const BLayout layout : {BLayout::nt, BLayout::nn})
            for (const Math math : {Math::f32, Math::bf16})
              for (const DType c_type : kTypes) {
                CAPTURE(s.m);
                CAPTURE(std::string(name_of(a_type)));
                CAPTURE(static_cast<int>(w));
                CAPTURE(static_cast<int>(layout));
                CAPTURE(static_cast<int>(math));
                CAPTURE(std::string(name_of(c_type)));
                const Term t(ctx, s.m, s.n, s.k, a_type, w, layout, false, math, 20);
                check_product(ctx, {&t}, c_type, math, {});
              }
  });
}

TEST_CASE("product: two terms, alpha, bias, residual, add") {
  on_each_backend([](Context& ctx) {
    for (const Math math : {Math::f32, Math::bf16}) {
      const DType a_type = math == Math::f32 ? DType::f32 : DType::bf16;
      const Term base(ctx, 13, 21, 66, a_type, Weight::nf4, BLayout::nt, false, math, 30);
      const Term lora(ctx, 13, 21, 4, DType::f32, Weight::f32, BLayout::nt, false, math, 32);
      const Term tokens(ctx, 13, 21, 70, a_type, Weight::bf16, BLayout::nn, true, math, 34);  // a reduction over tokens
      for (const DType c_type : kTypes)
        for (const float alpha : {1.0f, -0.5f})
          for (const bool bias : {false, true})
            for (const GradMode mode : {GradMode::write, GradMode::add})
              for (const auto residual : {Extras::none, Extras::apart, Extras::is_c}) {
                CAPTURE(static_cast<int>(math));
                CAPTURE(std::string(name_of(c_type)));
                CAPTURE(alpha);
                CAPTURE(bias);
                CAPTURE(static_cast<int>(mode));
                CAPTURE(static_cast<int>(residual));
                const Extras e{alpha, bias, mode, residual};
                check_product(ctx, {&base}, c_type, math, e);
                check_product(ctx, {&base, &lora}, c_type, math, e);
                check_product(ctx, {&tokens}, c_type, math, e);
              }
    }
  });
}

TEST_CASE("product: whether the residual is c or lies apart changes no bit") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t m = 13, n = 21;
    for (const Math math : {Math::f32, Math::bf16}) {
      const DType a_type = math == Math::f32 ? DType::f32 : DType::bf16;
      const Term base(ctx, m, n, 66, a_type, Weight::nf4, BLayout::nt, false, math, 30);
      const Term lora(ctx, m, n, 4, DType::f32, Weight::f32, BLayout::nt, false, math, 32);
      const DeviceVector<float> bias(ctx, random_values(n, 92));
      for (const DType type : kTypes)
        for (const int terms : {1, 2})
          for (const bool with_bias : {false, true}) {
            CAPTURE(std::string(name_of(type)));
            CAPTURE(terms);
            CAPTURE(with_bias);
            const auto values = rounded(random_values(m * n, 90), type);
            const DeviceMatrix residual(ctx, type, m, n, values), apart(ctx, type, m, n), over(ctx, type, m, n, values);
            ProductArgs args;
            args.num_terms = terms;
            args.terms[0] = base.term;
            args.terms[1] = lora.term;
            args.bias = with_bias ? bias.get() : nullptr;
            args.math = math;
            args.c = apart;
            args.residual = residual;
            product(ctx, args);
            args.c = over;
            args.residual = over;
            product(ctx, args);
            CHECK(over.host() == apart.host());
          }
    }
  });
}

TEST_CASE("product: a bias is added before the one rounding, wherever it lies") {
  // Sums of 257, which bf16 has not: rounded before the bias, they would be 256 and lose a bias of 1. N = 9 with a bias
  // off every alignment; values that bf16 holds, so that nothing else is rounded.
  on_each_backend([](Context& ctx) {
    constexpr int64_t m = 3, n = 9, k = 2;
    const DeviceMatrix a(ctx, DType::bf16, m, k, std::vector<float>(m * k, 16.0f)),
        b(ctx, DType::bf16, n, k, std::vector<float>(n * k, 8.0f)),
        one(ctx, DType::bf16, m, n, std::vector(m * n, 1.f));
    std::vector<float> values, want;
    for (int i = 0; i < n; ++i) values.push_back(static_cast<float>(2 * i - 9));
    for (int i = 0; i < m * n; ++i) want.push_back(257.0f + values[static_cast<size_t>(i % n)]);
    for (const int64_t offset : {0, 1, 4}) {
      auto padded = values;
      padded.insert(padded.begin(), static_cast<size_t>(offset), NAN);
      const DeviceVector<float> bias(ctx, padded);
      for (const DType type : kTypes)
        for (const DType residual_type : kTypes) {
          const DeviceMatrix c(ctx, type, m, n), r(ctx, residual_type, m, n, std::vector(m * n, 1.0f));
          product(ctx, {.terms = {{.a = a, .b = b}}, .bias = bias.get() + offset, .residual = r, .c = c});
          CHECK(c.host() == rounded(want, type));
        }
      const DeviceMatrix c(ctx, DType::bf16, m, n, std::vector(m * n, 1.0f));
      product(ctx, {.terms = {{.a = a, .b = b}}, .bias = bias.get() + offset, .c = c, .mode = GradMode::add});
      CHECK(c.host() == rounded(want, DType::bf16));
    }
  });
}

TEST_CASE("products: several in a row have the numbers of each alone, also where one reads what another wrote") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t t = 37, in = 24, out = 40, rank = 4;
    for (const DType type : kTypes)
      for (const Math math : {Math::f32, Math::bf16}) {
        CAPTURE(std::string(name_of(type)));
        CAPTURE(static_cast<int>(math));
        const DeviceMatrix dy(ctx, type, t, out, random_values(t * out, 60), out + 4),
            z(ctx, type, t, rank, random_values(t * rank, 61)),
            lora_b(ctx, DType::f32, out, rank, random_values(out * rank, 62)),
            lora_a(ctx, DType::f32, rank, in, random_values(rank * in, 63)),
            w(ctx, DType::bf16, out, in, random_values(out * in, 64));
        const auto run = [&](bool together) {
          const DeviceMatrix db(ctx, DType::f32, out, rank, random_values(out * rank, 65)), dz(ctx, type, t, rank),
              dx(ctx, type, t, in);
          const ProductArgs list[] = {
              {.terms = {{dy, WeightView(z), BLayout::nn, true}}, .c = db, .mode = GradMode::add, .math = math},
              {.terms = {{dy, lora_b, BLayout::nn}}, .alpha = 0.5f, .c = dz, .math = math},
              {.terms = {{dy, w, BLayout::nn}, {dz, lora_a, BLayout::nn}}, .num_terms = 2, .c = dx, .math = math}};
          if (together)
            products(ctx, {list});
          else
            for (const ProductArgs& p : list) product(ctx, p);
          auto all = db.host();
          for (const auto& more : {dz.host(), dx.host()}) all.insert(all.end(), more.begin(), more.end());
          return all;
        };
        CHECK(run(true) == run(false));
      }
    products(ctx, {});
    const DeviceMatrix a(ctx, DType::f32, 4, 4, random_values(16, 66));
    const ProductArgs over[] = {{.terms = {{a, WeightView(a)}}, .c = a}};
    CHECK_THROWS_WITH_AS(
        products(ctx, {over}),
        "products: the c of number 0 of several is the first one's terms[0].a, expected another matrix", Error);
  });
}

TEST_CASE("product: nf4 values are exact") {
  // Each row of c is one column of the weight, times one, plus zeros. 65 * 67 values: blocks cross rows, the last is
  // short.
  on_each_backend([](Context& ctx) {
    constexpr int64_t kRows = 65, kCols = 67;
    std::vector<float> identity(kCols * kCols);
    for (int64_t i = 0; i < kCols; ++i) identity[static_cast<size_t>(i * kCols + i)] = 1.0f;
    const DeviceMatrix a(ctx, DType::f32, kCols, kCols, identity), c(ctx, DType::f32, kCols, kRows);
    for (const bool nested : {false, true})
      for (const Math math : {Math::f32, Math::bf16}) {
        const Nf4Matrix w(kRows, kCols, nested, 40);
        const DeviceNf4 b(ctx, w);
        ProductArgs args;
        args.terms[0] = {a, b, BLayout::nt, false};
        args.c = c;
        args.math = math;
        product(ctx, args);
        CHECK(c.host() ==
              Term::transposed(rounded(w.values, math == Math::bf16 ? DType::bf16 : DType::f32), kRows, kCols, true));
      }
  });
}

TEST_CASE("product: a repeated call gives the same numbers") {
  on_each_backend([](Context& ctx) {
    const Term t(ctx, 31, 45, 130, DType::bf16, Weight::nf4_nested, BLayout::nt, false, Math::bf16, 50);
    const DeviceMatrix c(ctx, DType::bf16, 31, 45), again(ctx, DType::bf16, 31, 45);
    ProductArgs args;
    args.terms[0] = t.term;
    args.math = Math::bf16;
    args.c = c;
    product(ctx, args);
    args.c = again;
    product(ctx, args);
    CHECK(c.host() == again.host());
  });
}

}  // namespace
