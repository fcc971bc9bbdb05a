// SPDX-License-Identifier: Apache-2.0
#include "rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

template <class TX, class TY, bool kAdd>
void rotate_rows(const RopeArgs& a, int64_t begin, int64_t end) {
  const int64_t half = a.head_dim / 2;
  const V8 sign = hn::Set(D8(), a.inverse ? -1.0f : 1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float *cos = a.cos.row<float>(t), *sin = a.sin.row<float>(t);
    for (int64_t head = 0; head < a.x.cols; head += a.head_dim) {
      const TX* x = a.x.row<TX>(t) + head;
      TY* y = a.y.row<TY>(t) + head;
      for_vectors(half, [&](int64_t i, auto n) HWY_ATTR {
        const V8 first = load(x + i, n), second = load(x + i + half, n);
        const V8 co = load(cos + i, n), si = hn::Mul(load(sin + i, n), sign);
        put<kAdd>(hn::NegMulAdd(second, si, hn::Mul(first, co)), y + i, n);
        put<kAdd>(hn::MulAdd(first, si, hn::Mul(second, co)), y + i + half, n);
      });
    }
  }
}
void rope_rows(const RopeArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.x.dtype, [&]<class TX>() {
    with_float_type(a.y.dtype, [&]<class TY>() {
      if (a.mode == GradMode::add)
        rotate_rows<TX, TY, true>(a, begin, end);
      else
        rotate_rows<TX, TY, false>(a, begin, end);
    });
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(rope_rows);

void cpu::rope(Context& ctx, const RopeArgs& args) {
  parallel_for(ctx, args.x.rows, rows_per_piece(args.x.cols), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(args, begin, end);
  });
}

}  // namespace bantam
#endif
