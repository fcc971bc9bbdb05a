// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/cuda_ops.h"
#include "cuda/quads.cuh"
#include "rope.h"

namespace bantam::cuda {

namespace {
// One thread rotates four neighbouring pairs of a head. y may be x: a thread writes only what it alone reads.
template <class X, class Y>
__global__ void __launch_bounds__(kQuadThreads)
    rope_kernel(const X* x, int64_t x_stride, const float* __restrict__ cos, int64_t cos_stride,
                const float* __restrict__ sin, int64_t sin_stride, float sign, Y* y, int64_t y_stride, int heads,
                int half, int quads, int blocks, bool add) {
  const auto [row, quad] = row_quad(blocks);
  const int quads_per_head = (half + 3) / 4, head = quad / quads_per_head, i = 4 * (quad % quads_per_head);
  if (head >= heads) return;
  const X* xh = x + row * x_stride + 2 * head * half;
  Y* yh = y + row * y_stride + 2 * head * half;
  float first[4], second[4], c[4], s[4];
  load_some(xh, i, half, quads, first);
  load_some(xh + half, i, half, quads, second);
  load_some(cos + row * cos_stride, i, half, quads, c);
  const int n = load_some(sin + row * sin_stride, i, half, quads, s);
  CU_UNROLL
  for (int j = 0; j < 4; ++j) {  // fused as on the CPU
    const float a = first[j], b = second[j], sj = s[j] * sign;
    first[j] = fmaf(-b, sj, a * c[j]);
    second[j] = fmaf(a, sj, b * c[j]);
  }
  put_some(yh, i, n, quads, add, first);
  put_some(yh + half, i, n, quads, add, second);
}
}  // namespace

void rope(Context&, const RopeArgs& args) {
  const ConstTensorView &x = args.x, &cos = args.cos, &sin = args.sin;
  const TensorView& y = args.y;
  require_float(x.dtype, "rope", "x");
  require_float(y.dtype, "rope", "y");
  if (x.rows == 0 || x.cols == 0) return;
  const int cols = columns_of(x, "rope"), half = static_cast<int>(args.head_dim / 2), heads = cols / (2 * half);
  const bool vector = half % 4 == 0 && rows_aligned4(x) && rows_aligned4(y) && rows_aligned4(cos) && rows_aligned4(sin);
  const int blocks = blocks_per_row(heads * ((half + 3) / 4));
  with_float_type(x.dtype, [&]<class X>() {
    with_float_type(y.dtype, [&]<class Y>() {
      launch(rope_kernel<X, Y>, x.rows * blocks, kQuadThreads, 0, static_cast<const X*>(x.data), x.stride,
             static_cast<const float*>(cos.data), cos.stride, static_cast<const float*>(sin.data), sin.stride,
             args.inverse ? -1.0f : 1.0f, static_cast<Y*>(y.data), y.stride, heads, half, vector ? half / 4 : 0, blocks,
             args.mode == GradMode::add);
    });
  });
}

}  // namespace bantam::cuda
