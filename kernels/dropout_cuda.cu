// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/cuda_ops.h"
#include "cuda/quads.cuh"
#include "dropout.h"
#include "philox.h"

namespace bantam::cuda {

namespace {
// A thread's four channels are one draw of philox. y may be x: a thread writes only what it alone reads.
template <class X, class Y>
__global__ void __launch_bounds__(kQuadThreads)
    dropout_kernel(const X* x, int64_t x_stride, float p, float scale, const uint64_t* __restrict__ row_key,
                   const int32_t* __restrict__ position, int32_t layer, int32_t site, Y* y, int64_t y_stride, int cols,
                   int quads, int blocks, bool add) {
  const auto [row, quad] = row_quad(blocks);
  const int i = 4 * quad;
  if (i >= cols) return;
  float v[4];
  const int n = load_some(x + row * x_stride, i, cols, quads, v);
  if (p > 0.0f) {
    const PhiloxWords bits = dropout_bits(row_key[row], position[row], layer, site, static_cast<uint32_t>(quad));
    CU_UNROLL
    for (int j = 0; j < 4; ++j)  // not fused with the sum of put_some: the CPU's numbers, bit by bit
      v[j] = dropout_uniform(bits.word[j]) >= p ? __fmul_rn(v[j], scale) : 0.0f;
  }
  put_some(y + row * y_stride, i, n, quads, add, v);
}
}  // namespace

void dropout(Context&, const DropoutArgs& args) {
  const ConstTensorView& x = args.x;
  const TensorView& y = args.y;
  require_float(x.dtype, "dropout", "x");
  require_float(y.dtype, "dropout", "y");
  if (x.rows == 0 || x.cols == 0) return;
  const int cols = columns_of(x, "dropout"), blocks = blocks_per_row((cols + 3) / 4);
  const int quads = rows_aligned4(x) && rows_aligned4(y) ? cols / 4 : 0;
  with_float_type(x.dtype, [&]<class X>() {
    with_float_type(y.dtype, [&]<class Y>() {
      launch(dropout_kernel<X, Y>, x.rows * blocks, kQuadThreads, 0, static_cast<const X*>(x.data), x.stride, args.p,
             1.0f / (1.0f - args.p), args.row_key, args.position, args.layer, args.site, static_cast<Y*>(y.data),
             y.stride, cols, quads, blocks, args.mode == GradMode::add);
    });
  });
}

}  // namespace bantam::cuda
