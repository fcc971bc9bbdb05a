// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

template <class TX, class TY>
void norm_rows(const RmsNormArgs& a, int64_t begin, int64_t end) {
  const int64_t c = a.x.cols;
  for (int64_t t = begin; t < end; ++t) {
    const TX* x = a.x.row<TX>(t);
    TY* y = a.y.row<TY>(t);
    const float squares = sum_vectors(c, [&](int64_t i, auto n, V8 acc) HWY_ATTR {
      const V8 v = load(x + i, n);
      return hn::MulAdd(v, v, acc);
    });
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(c) + a.eps);
    a.rstd[t] = rstd;
    const V8 scale = hn::Set(D8(), rstd);
    for_vectors(c, [&](int64_t i, auto n)
                       HWY_ATTR { store(hn::Mul(hn::Mul(load(x + i, n), scale), load(a.weight + i, n)), y + i, n); });
  }
}
void rms_norm_rows(const RmsNormArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.x.dtype, [&]<class TX>() {
    with_float_type(a.y.dtype, [&]<class TY>() { norm_rows<TX, TY>(a, begin, end); });
  });
}

template <class TX, class TDy, class TDx, bool kAdd>
void norm_backward_rows(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  const int64_t c = a.x.cols;
  for (int64_t t = begin; t < end; ++t) {
    const TX* x = a.x.row<TX>(t);
    const TDy* dy = a.dy.row<TDy>(t);
    TDx* dx = a.dx.row<TDx>(t);
    const float dot = sum_vectors(c, [&](int64_t i, auto n, V8 acc) HWY_ATTR {
      return hn::MulAdd(hn::Mul(load(a.weight + i, n), load(dy + i, n)), load(x + i, n), acc);
    });
    const float rstd = a.rstd[t];
    const V8 scale = hn::Set(D8(), rstd), along = hn::Set(D8(), dot / static_cast<float>(c) * rstd * rstd);
    for_vectors(c, [&](int64_t i, auto n) HWY_ATTR {
      const V8 g = hn::Mul(load(a.weight + i, n), load(dy + i, n));
      put<kAdd>(hn::Mul(scale, hn::NegMulAdd(load(x + i, n), along, g)), dx + i, n);
    });
  }
}
void rms_norm_backward_rows(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.x.dtype, [&]<class TX>() {
    with_float_type(a.dy.dtype, [&]<class TDy>() {
      with_float_type(a.dx.dtype, [&]<class TDx>() {
        if (a.mode == GradMode::add)
          norm_backward_rows<TX, TDy, TDx, true>(a, begin, end);
        else
          norm_backward_rows<TX, TDy, TDx, false>(a, begin, end);
      });
    });
  });
}

// Columns [begin, end), at most kWeightColumns of them, of dweight. The sum of a slice of kWeightSlice rows starts at 0
// and is added to dweight when complete, so the order depends on T alone.
constexpr int64_t kWeightColumns = 128, kWeightSlice = 64;
template <class TX, class TDy>
void weight_columns(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  for (int64_t t0 = 0; t0 < a.x.rows; t0 += kWeightSlice) {
    HWY_ALIGN float sum[kWeightColumns] = {};
    for (int64_t t = t0; t < std::min(a.x.rows, t0 + kWeightSlice); ++t) {
      const TX* x = a.x.row<TX>(t) + begin;
      const TDy* dy = a.dy.row<TDy>(t) + begin;
      const V8 rstd = hn::Set(D8(), a.rstd[t]);
      for_vectors(end - begin, [&](int64_t i, auto n) HWY_ATTR {
        store(hn::MulAdd(load(dy + i, n), hn::Mul(load(x + i, n), rstd), load(sum + i, n)), sum + i, n);
      });
    }
    for (int64_t i = begin; i < end; ++i) a.dweight[i] += sum[i - begin];
  }
}
void rms_norm_weight_columns(const RmsNormBackwardArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.x.dtype, [&]<class TX>() {
    with_float_type(a.dy.dtype, [&]<class TDy>() { weight_columns<TX, TDy>(a, begin, end); });
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(rms_norm_backward_rows);
HWY_EXPORT(rms_norm_weight_columns);

void cpu::rms_norm(Context& ctx, const RmsNormArgs& args) {
  parallel_for(ctx, args.x.rows, rows_per_piece(args.x.cols), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(rms_norm_rows)(args, begin, end);
  });
}

void cpu::rms_norm_backward(Context& ctx, const RmsNormBackwardArgs& args) {
  // dweight first: dx may lie where dy is.
  if (args.dweight)
    parallel_for(ctx, args.x.cols, HWY_NAMESPACE::kWeightColumns, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(rms_norm_weight_columns)(args, begin, end);
    });
  if (args.dx)
    parallel_for(ctx, args.x.rows, rows_per_piece(args.x.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(rms_norm_backward_rows)(args, begin, end);
    });
}

}  // namespace bantam
#endif
