// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "grad_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/grad_norm_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

// Sum of squares in f64: the square of an f32 is exact there. Element i belongs to chain i % 16; then a fixed tree.
double slice_squares(const float* x, int64_t c) {
  const hn::CappedTag<double, 4> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(d)), kSums = 16, kParts = kSums / kStep;
  hn::Vec<decltype(d)> acc[kParts];
  for (int64_t k = 0; k < kParts; ++k) acc[k] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kSums <= c; i += kSums)
    for (int64_t k = 0; k < kParts; ++k) {
      const auto v = hn::PromoteTo(d, hn::LoadU(df, x + i + k * kStep));
      acc[k] = hn::MulAdd(v, v, acc[k]);
    }
  double sum[kSums];
  for (int64_t k = 0; k < kParts; ++k) hn::StoreU(acc[k], d, sum + k * kStep);
  for (int64_t k = 0; i < c; ++k, ++i) sum[k] += double{x[i]} * double{x[i]};
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) sum[k] += sum[k + half];
  return sum[0];
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(slice_squares);

void cpu::grad_norm(Context& ctx, const GradNormArgs& args) {
  constexpr int64_t kSlice = 65536, kRound = Context::kThreadScratch / sizeof(double);
  double* slices = static_cast<double*>(ctx.scratch(0));  // each entry written by one thread, then read by this one
  double total = 0;
  for (int64_t first = 0; first < args.n; first += kSlice * kRound) {
    const int64_t n = std::min(args.n - first, kSlice * kRound);
    parallel_for(ctx, n, kSlice, [&](int64_t begin, int64_t end, int) {
      slices[begin / kSlice] = HWY_DYNAMIC_DISPATCH(slice_squares)(args.grad + first + begin, end - begin);
    });
    for (int64_t s = 0; s < (n + kSlice - 1) / kSlice; ++s) total += slices[s];
  }
  *args.sum_of_squares = total;
}

}  // namespace bantam
#endif
