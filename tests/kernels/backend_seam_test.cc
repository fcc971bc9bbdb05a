// SPDX-License-Identifier: Apache-2.0
// One set of op tests on every backend: the built-in CPU, and the CUDA sources compiled for the host and loaded as a
// backend library, where this build has it. Tolerances do not know the backend.
#include "kernels/copy.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/device_harness.h"

using namespace bantam;
using namespace bantam::test;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16};

struct Norm {  // the formulas of rms_norm.h, in double
  std::vector<double> y, rstd, dx, dweight;
};
Norm norm(const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& dy, int64_t rows,
          int64_t cols, double eps) {
  Norm r{std::vector<double>(x.size()), std::vector<double>(static_cast<size_t>(rows)), std::vector<double>(x.size()),
         std::vector<double>(static_cast<size_t>(cols))};
  const auto c = static_cast<size_t>(cols);
  for (size_t t = 0; t < static_cast<size_t>(rows); ++t) {
    double sum = 0, dot = 0;
    for (size_t i = 0; i < c; ++i) sum += static_cast<double>(x[t * c + i]) * x[t * c + i];
    const double rstd = 1 / std::sqrt(sum / static_cast<double>(cols) + eps);
    r.rstd[t] = rstd;
    for (size_t i = 0; i < c; ++i) dot += static_cast<double>(w[i]) * dy[t * c + i] * x[t * c + i];
    for (size_t i = 0; i < c; ++i) {
      const size_t at = t * c + i;
      r.y[at] = x[at] * rstd * w[i];
      r.dx[at] = rstd * (static_cast<double>(w[i]) * dy[at] - x[at] * rstd * rstd * dot / static_cast<double>(cols));
      r.dweight[i] += dy[at] * x[at] * rstd;
    }
  }
  return r;
}
std::vector<double> bounds(const std::vector<double>& want, double relative, double absolute) {
  std::vector<double> b(want.size());
  for (size_t i = 0; i < b.size(); ++i) b[i] = relative * std::fabs(want[i]) + absolute;
  return b;
}

struct NormCase {
  int64_t rows, cols, pad, offset;  // pad: elements between rows; offset: of the first from an aligned address
};
// Several blocks and slices of 64 rows; widths with and without a tail of four, above and below 1,024; unaligned rows.
constexpr NormCase kNormCases[] = {{3, 64, 0, 0},   {130, 37, 0, 0}, {65, 8, 8, 0},
                                   {5, 1100, 0, 0}, {4, 30, 3, 1},   {1, 1, 0, 0}};

TEST_CASE("rms_norm") {
  on_each_backend([](Context& ctx) {
    for (const NormCase& n : kNormCases)
      for (const DType xt : kTypes)
        for (const DType yt : kTypes) {
          CAPTURE(n.rows);
          CAPTURE(n.cols);
          CAPTURE(std::string(name_of(xt)));
          CAPTURE(std::string(name_of(yt)));
          const auto x = rounded(random_values(n.rows * n.cols, 1, 3.0f), xt);
          const auto w = random_values(n.cols, 2);
          const Norm want = norm(x, w, x, n.rows, n.cols, 1e-5);
          const DeviceMatrix dx(ctx, xt, n.rows, n.cols, x, n.cols + n.pad, n.offset);
          const DeviceMatrix y(ctx, yt, n.rows, n.cols, n.cols + n.pad, n.offset);
          const DeviceVector<float> weight(ctx, w), rstd(ctx, n.rows);
          rms_norm(ctx, {.x = dx, .weight = weight.get(), .eps = 1e-5f, .y = y, .rstd = rstd.get()});
          const double sum_eps = (8 + static_cast<double>(n.cols) / 16) * kF32Eps;
          check_close(y.host(), want.y, bounds(want.y, eps_of(yt) + sum_eps, 1e-30));
          check_close(rstd.host(), want.rstd, bounds(want.rstd, sum_eps, 0));
          if (xt == yt) {  // y may be x itself, with the same numbers
            rms_norm(ctx, {.x = dx, .weight = weight.get(), .eps = 1e-5f, .y = dx, .rstd = rstd.get()});
            CHECK(dx.host() == y.host());
          }
        }
  });
}

TEST_CASE("rms_norm: a row does not depend on the other rows") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t kRows = 7, kCols = 203;
    const auto x = random_values(kRows * kCols, 3);
    const DeviceMatrix in(ctx, DType::f32, kRows, kCols, x), all(ctx, DType::f32, kRows, kCols),
        one(ctx, DType::f32, 1, kCols);
    const DeviceVector<float> weight(ctx, random_values(kCols, 4)), rstd(ctx, kRows);
    rms_norm(ctx, {.x = in, .weight = weight.get(), .y = all, .rstd = rstd.get()});
    rms_norm(ctx, {.x = ConstTensorView(in).row_range(5, 1), .weight = weight.get(), .y = one, .rstd = rstd.get()});
    const auto want = all.host();
    CHECK(one.host() == std::vector<float>(want.begin() + 5 * kCols, want.begin() + 6 * kCols));
  });
}

TEST_CASE("rms_norm_backward") {
  on_each_backend([](Context& ctx) {
    for (const NormCase& n : kNormCases)
      for (const DType xt : kTypes)
        for (const DType dyt : kTypes)
          for (const DType dxt : kTypes) {
            const GradMode mode = n.rows % 2 ? GradMode::add : GradMode::write;
            CAPTURE(n.rows);
            CAPTURE(n.cols);
            CAPTURE(std::string(name_of(xt)));
            CAPTURE(std::string(name_of(dyt)));
            CAPTURE(std::string(name_of(dxt)));
            const auto x = rounded(random_values(n.rows * n.cols, 5, 2.0f), xt);
            const auto dy = rounded(random_values(n.rows * n.cols, 6), dyt);
            const auto old = rounded(random_values(n.rows * n.cols, 7), dxt);
            const auto w = random_values(n.cols, 8), old_dw = random_values(n.cols, 9);
            Norm want = norm(x, w, dy, n.rows, n.cols, 1e-5);
            const DeviceMatrix xd(ctx, xt, n.rows, n.cols, x, n.cols + n.pad, n.offset);
            const DeviceMatrix dyd(ctx, dyt, n.rows, n.cols, dy, n.cols + n.pad, n.offset);
            const DeviceMatrix dx(ctx, dxt, n.rows, n.cols, old, n.cols + n.pad, n.offset);
            const DeviceVector<float> weight(ctx, w), dweight(ctx, old_dw);
            const DeviceVector<float> rstd(ctx, std::vector<float>(want.rstd.begin(), want.rstd.end()));
            RmsNormBackwardArgs args{.x = xd,
                                     .weight = weight.get(),
                                     .rstd = rstd.get(),
                                     .dy = dyd,
                                     .dx = dx,
                                     .mode = mode,
                                     .dweight = dweight.get()};
            rms_norm_backward(ctx, args);
            std::vector<double> dx_bound(want.dx.size()), dw_bound(want.dweight.size());
            const double sum_eps = (16 + static_cast<double>(n.cols) / 16) * kF32Eps;
            for (size_t i = 0; i < want.dx.size(); ++i) {
              const double scale = want.rstd[i / static_cast<size_t>(n.cols)];  // summands of dx, not dx, set the error
              dx_bound[i] = sum_eps * scale * (std::fabs(dy[i]) + 4) + kF32Eps;
              if (mode == GradMode::add) want.dx[i] += old[i];
              dx_bound[i] += eps_of(dxt) * std::fabs(want.dx[i]);
            }
            for (size_t i = 0; i < want.dweight.size(); ++i) {
              double magnitude = std::fabs(old_dw[i]);
              for (size_t t = 0; t < static_cast<size_t>(n.rows); ++t) {
                const size_t at = t * static_cast<size_t>(n.cols) + i;
                magnitude += std::fabs(dy[at] * x[at] * want.rstd[t]);
              }
              want.dweight[i] += old_dw[i];
              dw_bound[i] = (8 + static_cast<double>(n.rows)) * kF32Eps * magnitude;
            }
            check_close(dx.host(), want.dx, dx_bound);
            check_close(dweight.host(), want.dweight, dw_bound);

            // Without dx: dweight again, the same numbers from the same start. Without dweight: dx again.
            const DeviceVector<float> dweight2(ctx, old_dw);
            args.dx = {};
            args.dweight = dweight2.get();
            rms_norm_backward(ctx, args);
            CHECK(dweight2.host() == dweight.host());
            const DeviceMatrix dx2(ctx, dxt, n.rows, n.cols, old, n.cols + n.pad, n.offset);
            args.dx = dx2;
            args.dweight = nullptr;
            rms_norm_backward(ctx, args);
            CHECK(dx2.host() == dx.host());
            CHECK(dweight2.host() == dweight.host());
          }
  });
}

TEST_CASE("copy") {
  on_each_backend([](Context& ctx) {
    for (const NormCase& n : kNormCases)
      for (const DType xt : kTypes)
        for (const DType yt : kTypes)
          for (const GradMode mode : {GradMode::write, GradMode::add}) {
            const auto x = rounded(random_values(n.rows * n.cols, 10), xt);
            const auto old = rounded(random_values(n.rows * n.cols, 11), yt);
            const DeviceMatrix in(ctx, xt, n.rows, n.cols, x, n.cols + n.pad, n.offset);
            const DeviceMatrix out(ctx, yt, n.rows, n.cols, old, n.cols + n.pad, n.offset);
            copy(ctx, {.x = in, .y = out, .mode = mode});
            auto want = x;
            if (mode == GradMode::add)
              for (size_t i = 0; i < want.size(); ++i) want[i] += old[i];
            CHECK(out.host() == rounded(want, yt));
          }
  });
}

}  // namespace
