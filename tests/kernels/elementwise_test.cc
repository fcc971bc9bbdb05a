// SPDX-License-Identifier: Apache-2.0
// copy, adamw and grad_norm.
#include "kernels/adamw.h"
#include "kernels/copy.h"
#include "kernels/grad_norm.h"
#include "op_test.h"
#include "reference/adamw.h"

using namespace bantam;
using namespace bantam::test;

TEST_CASE("copy converts exactly: every pair of dtypes, written and added") {
  for (const Shape s : shapes())
    for (const DType tx : kFloats)
      for (const DType ty : kFloats)
        for (const GradMode mode : {GradMode::write, GradMode::add}) {
          const Matrix x(tx, s.rows, s.cols, Random(1), 2), before(ty, s.rows, s.cols, Random(2));
          Matrix y = before, want = before;
          copy(context(), {.x = x, .y = y, .mode = mode});
          for (int64_t t = 0; t < s.rows; ++t)
            for (int64_t i = 0; i < s.cols; ++i)
              want.put(t, i, mode == GradMode::add ? before.at(t, i) + x.at(t, i) : x.at(t, i));
          CHECK(y == want);
        }
}

TEST_CASE("copy row contract") {
  const Matrix x(DType::f32, 1000, 65, Random(3));
  check_row_contract(Matrix(DType::bf16, 1000, 65, Random(4)), [&](Context& ctx, Matrix& y, int64_t r0, int64_t n) {
    copy(ctx, {.x = x.part(r0, n), .y = y.part(r0, n), .mode = GradMode::add});
  });
  Matrix y(DType::f32, 3, 65);
  CHECK(error_of(ErrorCode::internal, [&] { copy(context(), {.x = x, .y = y}); }) ==
        "copy: y has shape [3, 65], expected [1000, 65]");
}

TEST_CASE("adamw gives the numbers of torch.optim.AdamW") {
  // torch 2.15.0: AdamW([p], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1), three steps of these gradients.
  std::vector<float> p = {0.5f, -1.25f, 3.0f, 0.0f}, m(4), v(4);
  const float grads[3][4] = {{0.1f, -0.2f, 1e-3f, 4.0f}, {-0.3f, 0.05f, 2e-3f, -1.0f}, {0.7f, 0.0f, -5e-3f, 0.25f}};
  const float want[3][4] = {{0.489500016f, -1.23874998f, 2.98699999f, -0.00999999978f},
                            {0.493952423f, -1.23281658f, 2.97436142f, -0.0146846818f},
                            {0.489208281f, -1.22795486f, 2.97417498f, -0.0186793357f}};
  const float want_m[4] = {0.0511000045f, -0.0117000006f, -0.000238999986f, 0.259000003f};
  const float want_v[4] = {0.000589890056f, 4.2417545e-05f, 2.99940019e-08f, 0.0170295164f};
  for (int step = 0; step < 3; ++step) {
    const AdamwScalars scalars = adamw_scalars({.step = step + 1, .lr = 1e-2, .weight_decay = 0.1});
    adamw(context(),
          {.param = p.data(), .grad = grads[step], .m = m.data(), .v = v.data(), .n = 4, .scalars = &scalars});
    // Both round in f32, in another order: each step moves the parameter's last bit by one or two.
    for (int i = 0; i < 4; ++i)
      CHECK(std::abs(p[i] - want[step][i]) <=
            2 * (step + 1) * 2 * tolerance::kF32 * std::max(std::abs(want[step][i]), 0.01f));
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(std::abs(m[i] - want_m[i]) <= 3 * tolerance::kAdamwM * tolerance::kF32 * 0.5);
    CHECK(std::abs(v[i] - want_v[i]) <= 3 * tolerance::kAdamwV * tolerance::kF32 * want_v[i]);
  }
}

TEST_CASE("adamw equals the reference in double, for any number of threads") {
  for (const int64_t n : {1, 7, 8, 65, 16384, 50001}) {
    Random random(5);
    const std::vector<float> grad = random.vector(n, 3), p0 = random.vector(n, 2), m0 = random.vector(n);
    std::vector<float> v0 = random.vector(n);
    for (float& x : v0) x = x * x;
    if (n > 2) v0[1] = 0;
    const AdamwScalars scalars =
        adamw_scalars({.step = 17, .lr = 3e-4, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.01});
    const double squares = 16;  // a norm of 4, of which 1 is allowed
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 7}) {
      std::vector<float> p = p0, m = m0, v = v0;
      adamw(context(threads), {.param = p.data(),
                               .grad = grad.data(),
                               .m = m.data(),
                               .v = v.data(),
                               .n = n,
                               .scalars = &scalars,
                               .sum_of_squares = &squares,
                               .max_grad_norm = 1});
      if (!first.empty()) {
        CHECK(p == first);
        continue;
      }
      first = p;
      Worst worst_p, worst_m, worst_v;
      for (int64_t i = 0; i < n; ++i) {
        const double g = 0.25 * double{grad[i]};
        const auto want = reference::adamw<double>({p0[i], m0[i], v0[i]}, g, 17, 3e-4, 0.8, 0.99, 1e-6, 0.01);
        const double m_terms = 0.8 * std::abs(m0[i]) + 0.2 * std::abs(g);
        worst_m.add(DType::f32, m[i], want.m, tolerance::kAdamwM, m_terms);
        worst_v.add(DType::f32, v[i], want.v, tolerance::kAdamwV, want.v);
        const double largest_update =
            3e-4 * m_terms / (1 - std::pow(0.8, 17)) / (std::sqrt(want.v / (1 - std::pow(0.99, 17))) + 1e-6);
        worst_p.add(
            p[i], want.param,
            tolerance::kAdamwUpdate * tolerance::kF32 * largest_update + 3 * tolerance::stored(DType::f32, p0[i]));
      }
      CHECK(worst_p.ratio() <= 1);
      CHECK(worst_m.ratio() <= 1);
      CHECK(worst_v.ratio() <= 1);
    }
  }
}

TEST_CASE("adamw: wrong arguments; zero elements are nothing to do") {
  std::vector<float> x(4, 1);
  const auto of_step = [](const AdamwStep& step) {
    return error_of(ErrorCode::internal, [&] { adamw_scalars(step); });
  };
  CHECK(of_step({.step = 0}) == "adamw: step must be at least 1, got 0");
  CHECK(of_step({.beta1 = -0.5}) == "adamw: beta1 must be in [0, 1), got -0.5");
  CHECK(of_step({.beta2 = 1}) == "adamw: beta2 must be in [0, 1), got 1");
  CHECK(of_step({.eps = -1}) == "adamw: eps must be at least 0, got -1");
  const AdamwScalars scalars = adamw_scalars({});
  const auto of = [](const AdamwArgs& args) { return error_of(ErrorCode::internal, [&] { adamw(context(), args); }); };
  const AdamwArgs good{.param = x.data(), .grad = x.data(), .m = x.data(), .v = x.data(), .n = 4, .scalars = &scalars};
  AdamwArgs args = good;
  args.grad = nullptr;
  CHECK(of(args) == "adamw: grad is null, expected data");
  args = good;
  args.scalars = nullptr;
  CHECK(of(args) == "adamw: scalars is null, expected data");
  args = good;
  args.max_grad_norm = 1;
  CHECK(of(args) == "adamw: sum_of_squares is null, expected data");
  args.max_grad_norm = -1;
  CHECK(of(args) == "adamw: max_grad_norm must be at least 0, got -1");
  CHECK(x == std::vector<float>(4, 1));
  adamw(context(), {.n = 0});
}

TEST_CASE("grad_norm is the sum of squares in f64, the same for any number of threads") {
  for (const int64_t n : {0, 1, 15, 16, 17, 65536, 65537, 400003}) {
    const std::vector<float> g = Random(6).vector(n, 1e3f);
    long double want = 0;
    for (const float x : g) want += static_cast<long double>(x) * x;
    double first = -1;
    for (const int threads : {1, 2, 3, 7}) {
      double sum = -1;
      grad_norm(context(threads), {.grad = g.data(), .n = n, .sum_of_squares = &sum});
      CHECK(std::abs(sum - static_cast<double>(want)) <= tolerance::grad_norm(n) * static_cast<double>(want));
      if (first < 0) first = sum;
      CHECK(sum == first);
    }
  }
}

TEST_CASE("grad_norm: large values do not overflow, non-finite ones show, wrong arguments are named") {
  std::vector<float> g(70000, 3e38f);
  double sum = 0;
  const auto run = [&] { grad_norm(context(), {.grad = g.data(), .n = 70000, .sum_of_squares = &sum}); };
  run();
  CHECK(sum == doctest::Approx(70000 * 9e76).epsilon(1e-6));
  g[69999] = INFINITY;
  run();
  CHECK(sum == INFINITY);
  g[3] = std::nanf("");
  run();
  CHECK(std::isnan(sum));
  CHECK(error_of(ErrorCode::internal, [&] {
          grad_norm(context(), {.grad = nullptr, .n = 1, .sum_of_squares = &sum});
        }) == "grad_norm: grad is null, expected data");
  CHECK(error_of(ErrorCode::internal, [&] { grad_norm(context(), {.grad = g.data(), .n = 1}); }) ==
        "grad_norm: sum_of_squares is null, expected data");
}
