// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

#include "op_test.h"
#include "reference/rms_norm.h"

using namespace bantam;
using namespace bantam::test;

namespace {
constexpr float kEps = 1e-5f;
std::vector<double> widened(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}
}  // namespace

TEST_CASE("reference rms_norm: the hand-written backward is the complex step of the forward") {
  using C = std::complex<double>;
  Random random(1);
  const double h = 1e-30;
  for (const size_t n : {1, 2, 7, 33}) {
    std::vector<double> x(n), w(n), dy(n), dx(n), dw(n);
    for (size_t i = 0; i < n; ++i) x[i] = random.uniform(2), w[i] = random.uniform(2), dy[i] = random.uniform(2);
    reference::rms_norm_backward(x, w, dy, 1e-5, dx, dw);
    const double rstd = reference::rms_norm_rstd(x, 1e-5);
    double along = 0;
    for (size_t i = 0; i < n; ++i) along += std::abs(w[i] * dy[i] * x[i]) * rstd * rstd / static_cast<double>(n);
    for (size_t j = 0; j < n; ++j) {
      for (const bool at_x : {true, false}) {
        std::vector<C> cx(x.begin(), x.end()), cw(w.begin(), w.end());
        (at_x ? cx : cw)[j] += C(0, h);
        const std::vector<C> y = reference::rms_norm(cx, cw, 1e-5);
        double d = 0;
        for (size_t i = 0; i < n; ++i) d += dy[i] * y[i].imag() / h;
        // dx is a difference of two terms; for one element they all but cancel.
        const double terms = at_x ? rstd * (std::abs(w[j] * dy[j]) + std::abs(x[j]) * along) : std::abs(dw[j]);
        CHECK(std::abs(d - (at_x ? dx : dw)[j]) <= 1e-12 * terms);
      }
    }
  }
}

TEST_CASE("rms_norm equals the reference in double") {
  for (const Shape s : shapes())
    for (const DType tx : kFloats)
      for (const DType ty : kFloats) {
        const Matrix x(tx, s.rows, s.cols, Random(2), 3);
        const std::vector<float> w = Random(3).vector(s.cols, 2);
        Matrix y(ty, s.rows, s.cols);
        std::vector<float> rstd(s.rows);
        rms_norm(context(), {.x = x, .weight = w.data(), .eps = kEps, .y = y, .rstd = rstd.data()});
        Worst worst_y, worst_rstd;
        for (int64_t t = 0; t < s.rows; ++t) {
          const std::vector<double> row = x.row(t), want = reference::rms_norm(row, widened(w), kEps);
          const double want_rstd = reference::rms_norm_rstd(row, kEps);
          worst_rstd.add(DType::f32, rstd[t], want_rstd, tolerance::rms_norm_rstd(s.cols), want_rstd);
          for (int64_t i = 0; i < s.cols; ++i)
            worst_y.add(ty, y.at(t, i), want[i], tolerance::rms_norm(s.cols), std::abs(want[i]));
        }
        CAPTURE(s.rows);
        CAPTURE(s.cols);
        CHECK(worst_y.ratio() <= 1);
        CHECK(worst_rstd.ratio() <= 1);
        CHECK(y.gaps_intact());
      }
}

TEST_CASE("rms_norm in place is rms_norm") {
  for (const DType t : kFloats) {
    Matrix x(t, 9, 65, Random(4)), y(t, 9, 65);
    const std::vector<float> w = Random(5).vector(65);
    std::vector<float> rstd(9), rstd_in_place(9);
    rms_norm(context(), {.x = x, .weight = w.data(), .y = y, .rstd = rstd.data()});
    rms_norm(context(), {.x = x, .weight = w.data(), .y = x, .rstd = rstd_in_place.data()});
    CHECK(x == y);
    CHECK(rstd == rstd_in_place);
  }
}

TEST_CASE("rms_norm row contract") {
  const Matrix x(DType::bf16, 1000, 65, Random(6));
  const std::vector<float> w = Random(7).vector(65);
  std::vector<float> rstd(1000);
  check_row_contract(Matrix(DType::f32, 1000, 65), [&](Context& ctx, Matrix& y, int64_t r0, int64_t n) {
    rms_norm(ctx, {.x = x.part(r0, n), .weight = w.data(), .y = y.part(r0, n), .rstd = rstd.data() + r0});
  });
}

TEST_CASE("rms_norm_backward equals the reference in double, written and added, dweight too") {
  for (const Shape s : shapes())
    for (const DType tx : kFloats)
      for (const DType tdy : kFloats)
        for (const DType tdx : kFloats)
          for (const GradMode mode : {GradMode::write, GradMode::add}) {
            const Matrix x(tx, s.rows, s.cols, Random(8), 3), dy(tdy, s.rows, s.cols, Random(9), 2);
            const std::vector<float> w = Random(10).vector(s.cols, 2);
            const Matrix before(tdx, s.rows, s.cols, Random(11));
            Matrix dx = before;
            std::vector<float> dw = Random(12).vector(s.cols), rstd(s.rows);
            const std::vector<float> dw_before = dw;
            for (int64_t t = 0; t < s.rows; ++t) rstd[t] = static_cast<float>(reference::rms_norm_rstd(x.row(t), kEps));
            rms_norm_backward(context(), {.x = x,
                                          .weight = w.data(),
                                          .rstd = rstd.data(),
                                          .dy = dy,
                                          .dx = dx,
                                          .mode = mode,
                                          .dweight = dw.data()});
            Worst worst_dx, worst_dw;
            std::vector<double> want_dw(s.cols), terms_dw(s.cols), want_dx(s.cols);
            for (int64_t t = 0; t < s.rows; ++t) {
              const std::vector<double> rx = x.row(t), rdy = dy.row(t);
              reference::rms_norm_backward(rx, widened(w), rdy, kEps, want_dx, want_dw);
              double terms = 0;
              for (int64_t i = 0; i < s.cols; ++i) terms += std::abs(w[i] * rdy[i] * rx[i]);
              const double r = rstd[t], along = r * r * terms / static_cast<double>(s.cols);
              for (int64_t i = 0; i < s.cols; ++i) {
                terms_dw[i] += std::abs(rdy[i] * rx[i] * r);
                const double start = mode == GradMode::add ? before.at(t, i) : 0;
                worst_dx.add(tdx, dx.at(t, i), want_dx[i] + start, tolerance::rms_norm_dx(s.cols),
                             r * (std::abs(w[i] * rdy[i]) + std::abs(rx[i]) * along) + std::abs(start));
              }
            }
            for (int64_t i = 0; i < s.cols; ++i)
              worst_dw.add(DType::f32, dw[i], want_dw[i] + dw_before[i], tolerance::rms_norm_dweight(s.rows),
                           terms_dw[i] + std::abs(dw_before[i]));
            CAPTURE(s.rows);
            CAPTURE(s.cols);
            CHECK(worst_dx.ratio() <= 1);
            CHECK(worst_dw.ratio() <= 1);
            CHECK(dx.gaps_intact());
          }
}

TEST_CASE("rms_norm_backward: row contract of dx; dweight is the same for any number of threads") {
  const int64_t rows = 1000, cols = 200;
  const Matrix x(DType::bf16, rows, cols, Random(13)), dy(DType::f32, rows, cols, Random(14));
  const std::vector<float> w = Random(15).vector(cols), rstd(rows, 1.25f);
  check_row_contract(Matrix(DType::bf16, rows, cols, Random(16)), [&](Context& ctx, Matrix& dx, int64_t r0, int64_t n) {
    rms_norm_backward(ctx, {.x = x.part(r0, n),
                            .weight = w.data(),
                            .rstd = rstd.data() + r0,
                            .dy = dy.part(r0, n),
                            .dx = dx.part(r0, n),
                            .mode = GradMode::add});
  });
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 7}) {
    std::vector<float> dw(cols, 0.5f);
    rms_norm_backward(context(threads),
                      {.x = x, .weight = w.data(), .rstd = rstd.data(), .dy = dy, .dweight = dw.data()});
    if (first.empty()) first = dw;
    CHECK(dw == first);
  }
  if (best_isa() < Isa::avx2) return;  // no fused product there
  // The slices: 64 rows are summed from zero and then added.
  for (int64_t i = 0; i < cols; ++i) {
    float want = 0.5f;
    for (int64_t t0 = 0; t0 < rows; t0 += 64) {
      float slice = 0;
      for (int64_t t = t0; t < std::min(rows, t0 + 64); ++t) slice = std::fma(dy.at(t, i), x.at(t, i) * rstd[t], slice);
      want += slice;
    }
    CHECK(first[i] == want);
  }
}

TEST_CASE("rms_norm: wrong arguments name the op, what was found and what was expected") {
  Matrix x(DType::f32, 2, 8), y(DType::f32, 2, 9);
  const std::vector<float> w(9, 1);
  std::vector<float> rstd(2);
  const std::string message = error_of(
      ErrorCode::internal, [&] { rms_norm(context(), {.x = x, .weight = w.data(), .y = y, .rstd = rstd.data()}); });
  CHECK(message == "rms_norm: y has shape [2, 9], expected [2, 8]");
  Matrix z(DType::f32, 2, 8);
  CHECK(error_of(ErrorCode::internal, [&] { rms_norm(context(), {.x = x, .y = z, .rstd = rstd.data()}); }) ==
        "rms_norm: weight is null, expected data");
  CHECK(
      error_of(ErrorCode::internal, [&] {
        rms_norm(context(), {.x = {x.view().data, DType::i32, 2, 8}, .weight = w.data(), .y = z, .rstd = rstd.data()});
      }) == "rms_norm: x has dtype i32, expected f32 or bf16");
  rms_norm(context(), {.x = {nullptr, DType::f32, 0, 8}, .y = {nullptr, DType::f32, 0, 8}});  // no rows: nothing to do
}
