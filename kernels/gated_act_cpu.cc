// SPDX-License-Identifier: Apache-2.0
#include "gated_act.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_act_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

struct ActAndSlope {
  V8 act, slope;
};
HWY_INLINE ActAndSlope silu(V8 x) {
  const Sigmoid g = vec_sigmoid(x);
  return {hn::Mul(x, g.s), hn::Mul(g.s, hn::MulAdd(x, g.t, hn::Set(D8(), 1.0f)))};
}
// 0.5 (1 + tanh u) is the sigmoid of 2u, which does not cancel for negative x.
HWY_INLINE ActAndSlope gelu_tanh(V8 x) {
  const D8 d;
  constexpr float kTwo = 1.59576912f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
  // Past 30 the sigmoid is 0 or 1 already; without the bound x^3 overflows.
  const V8 c = hn::Min(hn::Max(x, hn::Set(d, -30.0f)), hn::Set(d, 30.0f));
  const V8 square = hn::Mul(c, c), one = hn::Set(d, 1.0f);
  const V8 two_u = hn::Mul(hn::Mul(c, hn::Set(d, kTwo)), hn::MulAdd(square, hn::Set(d, kCubic), one));
  const V8 two_du = hn::Mul(hn::Set(d, kTwo), hn::MulAdd(square, hn::Set(d, 3 * kCubic), one));
  const Sigmoid g = vec_sigmoid(two_u);
  const V8 slope = hn::MulAdd(hn::Mul(c, hn::Mul(g.s, g.t)), two_du, g.s);
  return {hn::Mul(x, g.s), hn::IfThenElse(hn::IsNaN(x), x, slope)};
}
template <Act kAct>
HWY_INLINE ActAndSlope activate(V8 x) {
  return kAct == Act::silu ? silu(x) : gelu_tanh(x);
}

template <class T, Act kAct>
void forward_rows(const GatedActArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T *gate = a.gate.row<T>(t), *up = a.up.row<T>(t);
    T* y = a.y.row<T>(t);
    for_vectors(a.gate.cols, [&](int64_t i, auto n) HWY_ATTR {
      store(hn::Mul(activate<kAct>(load(gate + i, n)).act, load(up + i, n)), y + i, n);
    });
  }
}
void gated_act_rows(const GatedActArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.gate.dtype, [&]<class T>() {
    if (a.act == Act::silu)
      forward_rows<T, Act::silu>(a, begin, end);
    else
      forward_rows<T, Act::gelu_tanh>(a, begin, end);
  });
}

// A row of an output whose dtype and mode are looked up per vector: exp costs far more than the branch.
struct Sink {
  float* f32 = nullptr;
  bf16* half = nullptr;
  bool add;
  Sink(const TensorView& v, GradMode mode, int64_t t) : add(mode == GradMode::add) {
    if (!v) return;
    if (v.dtype == DType::bf16)
      half = v.row<bf16>(t);
    else
      f32 = v.row<float>(t);
  }
  template <class N>
  HWY_INLINE void write(V8 v, int64_t i, N n) const {
    if (f32) add ? put<true>(v, f32 + i, n) : put<false>(v, f32 + i, n);
    if (half) add ? put<true>(v, half + i, n) : put<false>(v, half + i, n);
  }
};

template <class T, class TDy, Act kAct>
void backward_rows(const GatedActBackwardArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T *gate = a.gate.row<T>(t), *up = a.up.row<T>(t);
    const TDy* dy = a.dy.row<TDy>(t);
    const Sink dgate(a.dgate, a.dgate_mode, t), dup(a.dup, a.dup_mode, t);
    for_vectors(a.gate.cols, [&](int64_t i, auto n) HWY_ATTR {
      const V8 g = load(dy + i, n), u = load(up + i, n);
      const ActAndSlope f = activate<kAct>(load(gate + i, n));
      dgate.write(hn::Mul(hn::Mul(g, u), f.slope), i, n);
      dup.write(hn::Mul(g, f.act), i, n);
    });
  }
}
void gated_act_backward_rows(const GatedActBackwardArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.gate.dtype, [&]<class T>() {
    with_float_type(a.dy.dtype, [&]<class TDy>() {
      if (a.act == Act::silu)
        backward_rows<T, TDy, Act::silu>(a, begin, end);
      else
        backward_rows<T, TDy, Act::gelu_tanh>(a, begin, end);
    });
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(gated_act_rows);
HWY_EXPORT(gated_act_backward_rows);

void cpu::gated_act(Context& ctx, const GatedActArgs& args) {
  parallel_for(ctx, args.gate.rows, rows_per_piece(args.gate.cols), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(gated_act_rows)(args, begin, end);
  });
}

void cpu::gated_act_backward(Context& ctx, const GatedActBackwardArgs& args) {
  parallel_for(ctx, args.gate.rows, rows_per_piece(args.gate.cols), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(gated_act_backward_rows)(args, begin, end);
  });
}

}  // namespace bantam
#endif
