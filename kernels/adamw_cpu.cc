// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "adamw.h"
#include "clip_factor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

void adamw_range(const AdamwArgs& a, float clip, int64_t begin, int64_t end) {
  const D8 d;
  const AdamwScalars& s = *a.scalars;
  const V8 beta1 = hn::Set(d, s.beta1), rest1 = hn::Set(d, s.rest1);
  const V8 beta2 = hn::Set(d, s.beta2), rest2 = hn::Set(d, s.rest2);
  const V8 keep = hn::Set(d, s.keep), step_size = hn::Set(d, s.step_size);
  const V8 root2 = hn::Set(d, s.root2), eps = hn::Set(d, s.eps), grad_scale = hn::Set(d, clip);
  for_vectors(end - begin, [&](int64_t k, auto n) HWY_ATTR {
    const int64_t i = begin + k;
    const V8 g = hn::Mul(load(a.grad + i, n), grad_scale);
    const V8 m = hn::MulAdd(load(a.m + i, n), beta1, hn::Mul(g, rest1));
    const V8 v = hn::MulAdd(load(a.v + i, n), beta2, hn::Mul(hn::Mul(g, g), rest2));
    const V8 denominator = hn::Add(hn::Div(hn::Sqrt(v), root2), eps);
    const V8 p = hn::Mul(load(a.param + i, n), keep);
    store(hn::Sub(p, hn::Div(hn::Mul(step_size, m), denominator)), a.param + i, n);
    store(m, a.m + i, n);
    store(v, a.v + i, n);
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(adamw_range);

void cpu::adamw(Context& ctx, const AdamwArgs& args) {
  const float clip = args.sum_of_squares ? clip_factor(*args.sum_of_squares, args.max_grad_norm) : 1.0f;
  if (std::isnan(clip)) return;
  parallel_for(ctx, args.n, 16384, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(adamw_range)(args, clip, begin, end);
  });
}

}  // namespace bantam
#endif
