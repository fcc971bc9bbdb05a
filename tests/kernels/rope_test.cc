// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <complex>

#include "op_test.h"
#include "reference/rope.h"

using namespace bantam;
using namespace bantam::test;

namespace {
struct Tables {
  Matrix cos, sin;
  Tables(int64_t rows, int64_t half) : cos(DType::f32, rows, half), sin(DType::f32, rows, half) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        cos.put(t, i, static_cast<float>(std::cos(angle)));
        sin.put(t, i, static_cast<float>(std::sin(angle)));
      }
  }
};
struct HeadShape {
  int64_t rows, heads, head_dim;
};
const std::vector<HeadShape> kHeadShapes = {{1, 1, 2}, {3, 2, 6}, {63, 3, 16}, {65, 9, 64}, {5, 2, 130}, {1000, 1, 34}};
}  // namespace

TEST_CASE("reference rope: the inverse is the transpose of the forward (complex step)") {
  using C = std::complex<double>;
  Random random(1);
  std::vector<double> x(10), dy(10), cos(5), sin(5);
  for (auto* v : {&x, &dy, &cos, &sin})
    for (double& e : *v) e = random.uniform(1);
  const std::vector<double> dx = reference::rope(dy, cos, sin, true);
  for (size_t j = 0; j < x.size(); ++j) {
    std::vector<C> cx(x.begin(), x.end());
    cx[j] += C(0, 1e-30);
    const std::vector<C> y = reference::rope(cx, cos, sin, false);
    double d = 0;
    for (size_t i = 0; i < y.size(); ++i) d += dy[i] * y[i].imag() / 1e-30;
    CHECK(std::abs(d - dx[j]) <= 1e-12);
  }
}

TEST_CASE("rope equals the reference in double: both ways, dtypes, modes, in place") {
  for (const HeadShape s : kHeadShapes)
    for (const DType tx : kFloats)
      for (const DType ty : kFloats)
        for (const bool inverse : {false, true})
          for (const GradMode mode : {GradMode::write, GradMode::add}) {
            const int64_t cols = s.heads * s.head_dim, half = s.head_dim / 2;
            const Tables tables(s.rows, half);
            const Matrix x(tx, s.rows, cols, Random(2), 3), before(ty, s.rows, cols, Random(3));
            Matrix y = before;
            rope(context(), {.x = x,
                             .cos = tables.cos,
                             .sin = tables.sin,
                             .head_dim = s.head_dim,
                             .inverse = inverse,
                             .y = y,
                             .mode = mode});
            Worst worst;
            for (int64_t t = 0; t < s.rows; ++t)
              for (int64_t head = 0; head < s.heads; ++head) {
                const std::vector<double> row = x.row(t), cos = tables.cos.row(t), sin = tables.sin.row(t);
                const std::vector<double> one(row.begin() + head * s.head_dim, row.begin() + (head + 1) * s.head_dim);
                const std::vector<double> want = reference::rope(one, cos, sin, inverse);
                for (int64_t i = 0; i < s.head_dim; ++i) {
                  const double start = mode == GradMode::add ? before.at(t, head * s.head_dim + i) : 0;
                  const double scale =
                      std::abs(one[i] * cos[i % half]) + std::abs(one[(i + half) % s.head_dim] * sin[i % half]);
                  worst.add(ty, y.at(t, head * s.head_dim + i), want[i] + start, tolerance::kRope, scale);
                }
              }
            CAPTURE(s.head_dim);
            CHECK(worst.ratio() <= 1);
            CHECK(y.gaps_intact());
            if (tx == ty && mode == GradMode::write) {
              Matrix z = x;
              rope(context(),
                   {.x = z, .cos = tables.cos, .sin = tables.sin, .head_dim = s.head_dim, .inverse = inverse, .y = z});
              CHECK(z == y);
            }
          }
}

TEST_CASE("rope row contract") {
  const Tables tables(1000, 5);
  const Matrix x(DType::f32, 1000, 30, Random(4));
  check_row_contract(Matrix(DType::bf16, 1000, 30, Random(5)), [&](Context& ctx, Matrix& y, int64_t r0, int64_t n) {
    rope(ctx, {.x = x.part(r0, n),
               .cos = tables.cos.part(r0, n),
               .sin = tables.sin.part(r0, n),
               .head_dim = 10,
               .y = y.part(r0, n),
               .mode = GradMode::add});
  });
}

TEST_CASE("rope: wrong arguments") {
  Matrix x(DType::f32, 2, 12), y(DType::f32, 2, 12), cos(DType::f32, 2, 3), half(DType::bf16, 2, 3);
  const auto with = [&](int64_t head_dim, const Matrix& sin) {
    return error_of(ErrorCode::internal,
                    [&] { rope(context(), {.x = x, .cos = cos, .sin = sin, .head_dim = head_dim, .y = y}); });
  };
  CHECK(with(3, cos) == "rope: head_dim must be even and positive, got 3");
  CHECK(with(8, cos) == "rope: head_dim must divide the columns of x, got 8");
  CHECK(with(4, cos) == "rope: cos has shape [2, 3], expected [2, 2]");
  CHECK(with(6, half) == "rope: sin has dtype bf16, expected f32");
}
