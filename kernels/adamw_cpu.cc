// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

void adamw_range(const AdamwArgs& a, int64_t begin, int64_t end) {
  const D8 d;
  // Scalars in double, rounded once, as torch does.
  const double step = static_cast<double>(a.step);
  const double correction1 = 1 - std::pow(a.beta1, step), correction2 = 1 - std::pow(a.beta2, step);
  const auto set = [](double v) HWY_ATTR { return hn::Set(D8(), static_cast<float>(v)); };
  const V8 beta1 = set(a.beta1), rest1 = set(1 - a.beta1), beta2 = set(a.beta2), rest2 = set(1 - a.beta2);
  const V8 keep = set(1 - a.lr * a.weight_decay), step_size = set(a.lr / correction1);
  const V8 root2 = set(std::sqrt(correction2)), eps = set(a.eps), grad_scale = hn::Set(d, a.grad_scale);
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
  parallel_for(ctx, args.n, 16384, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(adamw_range)(args, begin, end);
  });
}

}  // namespace bantam
#endif
