// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

template <class TX, class TY, bool kAdd>
void convert_rows(const CopyArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const TX* x = a.x.row<TX>(t);
    TY* y = a.y.row<TY>(t);
    for_vectors(a.x.cols, [&](int64_t i, auto n) HWY_ATTR { put<kAdd>(load(x + i, n), y + i, n); });
  }
}
void copy_rows(const CopyArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.x.dtype, [&]<class TX>() {
    with_float_type(a.y.dtype, [&]<class TY>() {
      if (a.mode == GradMode::add)
        convert_rows<TX, TY, true>(a, begin, end);
      else
        convert_rows<TX, TY, false>(a, begin, end);
    });
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(copy_rows);

void cpu::copy(Context& ctx, const CopyArgs& args) {
  parallel_for(ctx, args.x.rows, rows_per_piece(args.x.cols), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(copy_rows)(args, begin, end);
  });
}

}  // namespace bantam
#endif
