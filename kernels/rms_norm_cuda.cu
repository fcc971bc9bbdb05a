// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/cuda_ops.h"
#include "cuda/quads.cuh"
#include "device_scratch.h"

namespace bantam::cuda {

namespace {
// One block per row. Threads take quads (quads.cuh), so the order of the sum depends on cols only.

// y may be x: a thread writes only what it alone reads.
template <int Threads, class X, class Y>
__global__ void __launch_bounds__(Threads)
    rms_norm_kernel(const X* x, int64_t x_stride, const float* __restrict__ weight, float eps, Y* y, int64_t y_stride,
                    float* __restrict__ rstd, int cols, int quads) {
  CU_SHARED(float, shared, [32]);
  const int64_t row = blockIdx.x;
  const X* xr = x + row * x_stride;
  Y* yr = y + row * y_stride;
  float v[4], w[4], sum = 0.0f;
  for (int i = 4 * static_cast<int>(threadIdx.x); i < cols; i += 4 * Threads) {
    load_some(xr, i, cols, quads, v);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) sum += v[j] * v[j];
  }
  const float r = rsqrtf(block_sum(sum, shared) / static_cast<float>(cols) + eps);
  if (threadIdx.x == 0) rstd[row] = r;
  for (int i = 4 * static_cast<int>(threadIdx.x); i < cols; i += 4 * Threads) {
    const int n = load_some(xr, i, cols, quads, v);
    load_some(weight, i, cols, quads, w);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = v[j] * r * w[j];
    store_some(yr, i, n, quads, v);
  }
}

// dx may be dy: a thread writes only what it alone reads.
template <int Threads, class X, class Dy, class Dx>
__global__ void __launch_bounds__(Threads)
    rms_norm_dx_kernel(const X* __restrict__ x, int64_t x_stride, const float* __restrict__ weight,
                       const float* __restrict__ rstd, const Dy* dy, int64_t dy_stride, Dx* dx, int64_t dx_stride,
                       int cols, int quads, bool add) {
  CU_SHARED(float, shared, [32]);
  const int64_t row = blockIdx.x;
  const X* xr = x + row * x_stride;
  const Dy* dyr = dy + row * dy_stride;
  Dx* dxr = dx + row * dx_stride;
  const float r = rstd[row];
  float v[4], w[4], g[4], dot = 0.0f;
  for (int i = 4 * static_cast<int>(threadIdx.x); i < cols; i += 4 * Threads) {
    load_some(xr, i, cols, quads, v);
    load_some(dyr, i, cols, quads, g);
    load_some(weight, i, cols, quads, w);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) dot += w[j] * g[j] * v[j];
  }
  dot = block_sum(dot, shared) / static_cast<float>(cols) * r * r;
  for (int i = 4 * static_cast<int>(threadIdx.x); i < cols; i += 4 * Threads) {
    const int n = load_some(xr, i, cols, quads, v);
    load_some(dyr, i, cols, quads, g);
    load_some(weight, i, cols, quads, w);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = r * (w[j] * g[j] - v[j] * dot);
    put_some(dxr, i, n, quads, add, v);
  }
}

// dweight without atomics: rows are cut into slices of kSlice, whatever the device; one thread sums one column of one
// slice, then one thread adds the slices of one column in order.
constexpr int kSlice = kNormSlice, kColumns = 128;

template <class X, class Dy>
__global__ void __launch_bounds__(kColumns)
    rms_norm_dweight_slices_kernel(const X* __restrict__ x, int64_t x_stride, const float* __restrict__ rstd,
                                   const Dy* __restrict__ dy, int64_t dy_stride, float* __restrict__ partial,
                                   int64_t rows, int cols, int column_blocks) {
  const int64_t slice = blockIdx.x / static_cast<unsigned>(column_blocks);
  const int col = static_cast<int>(blockIdx.x % static_cast<unsigned>(column_blocks) * kColumns + threadIdx.x);
  if (col >= cols) return;
  const int64_t end = (slice + 1) * kSlice < rows ? (slice + 1) * kSlice : rows;
  float sum = 0.0f;
  for (int64_t t = slice * kSlice; t < end; ++t)
    sum += load(dy + t * dy_stride + col) * load(x + t * x_stride + col) * rstd[t];
  partial[slice * cols + col] = sum;
}
__global__ void __launch_bounds__(kColumns)
    rms_norm_dweight_sum_kernel(const float* __restrict__ partial, int64_t slices, int cols, float* dweight) {
  const int col = static_cast<int>(blockIdx.x * kColumns + threadIdx.x);
  if (col >= cols) return;
  float sum = 0.0f;
  for (int64_t s = 0; s < slices; ++s) sum += partial[s * cols + col];
  dweight[col] += sum;
}

// Calls f<Threads>() with the block size for a row of cols elements.
template <class F>
void with_block(int64_t cols, F&& f) {
  if (cols <= 1024) return f.template operator()<128>();
  f.template operator()<512>();
}
}  // namespace

void rms_norm(Context&, const RmsNormArgs& args) {
  const ConstTensorView& x = args.x;
  const TensorView& y = args.y;
  require_float(x.dtype, "rms_norm", "x");
  require_float(y.dtype, "rms_norm", "y");
  if (x.rows == 0 || x.cols == 0) return;
  const int cols = columns_of(x, "rms_norm");
  const int quads = rows_aligned4(x) && rows_aligned4(y) && rows_aligned4(args.weight, 0, DType::f32) ? cols / 4 : 0;
  with_block(x.cols, [&]<int Threads>() {
    with_float_type(x.dtype, [&]<class X>() {
      with_float_type(y.dtype, [&]<class Y>() {
        launch(rms_norm_kernel<Threads, X, Y>, x.rows, Threads, 0, static_cast<const X*>(x.data), x.stride, args.weight,
               args.eps, static_cast<Y*>(y.data), y.stride, args.rstd, cols, quads);
      });
    });
  });
}

void rms_norm_backward(Context&, const RmsNormBackwardArgs& args) {
  const ConstTensorView &x = args.x, &dy = args.dy;
  const TensorView& dx = args.dx;
  require_float(x.dtype, "rms_norm_backward", "x");
  require_float(dy.dtype, "rms_norm_backward", "dy");
  require_float(dx.dtype, "rms_norm_backward", "dx");
  if (x.rows == 0 || x.cols == 0) return;
  const int cols = columns_of(x, "rms_norm_backward");
  with_float_type(x.dtype, [&]<class X>() {
    with_float_type(dy.dtype, [&]<class Dy>() {
      const auto* xp = static_cast<const X*>(x.data);
      const auto* dyp = static_cast<const Dy*>(dy.data);
      // dweight first: dx may take the place of dy.
      if (args.dweight) {
        const int64_t slices = blocks_for(x.rows, kSlice), column_blocks = blocks_for(x.cols, kColumns);
        auto* partial = reinterpret_cast<float*>(workspace(device_scratch(args)));
        launch(rms_norm_dweight_slices_kernel<X, Dy>, slices * column_blocks, kColumns, 0, xp, x.stride, args.rstd, dyp,
               dy.stride, partial, x.rows, cols, static_cast<int>(column_blocks));
        launch(rms_norm_dweight_sum_kernel, column_blocks, kColumns, 0, partial, slices, cols, args.dweight);
      }
      if (!dx) return;
      const bool vector =
          rows_aligned4(x) && rows_aligned4(dy) && rows_aligned4(dx) && rows_aligned4(args.weight, 0, DType::f32);
      with_block(x.cols, [&]<int Threads>() {
        with_float_type(dx.dtype, [&]<class Dx>() {
          launch(rms_norm_dx_kernel<Threads, X, Dy, Dx>, x.rows, Threads, 0, xp, x.stride, args.weight, args.rstd, dyp,
                 dy.stride, static_cast<Dx*>(dx.data), dx.stride, cols, vector ? cols / 4 : 0,
                 args.mode == GradMode::add);
        });
      });
    });
  });
}

}  // namespace bantam::cuda
