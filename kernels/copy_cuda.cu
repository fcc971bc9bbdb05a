// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "copy.h"
#include "cuda/cuda_ops.h"
#include "error.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 256;

// One thread per element. x and y may be the same memory when their types are equal.
template <class X, class Y>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const X* x, int64_t x_stride, Y* y, int64_t y_stride, int64_t rows, int64_t cols, bool add) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * cols) return;
  const int64_t row = i / cols, col = i % cols;
  Y* to = y + row * y_stride + col;
  const float v = load(x + row * x_stride + col);
  store(to, add ? load(to) + v : v);
}
}  // namespace

bool has_code() {
  cudaFuncAttributes attributes{};
  const auto* kernel = reinterpret_cast<const void*>(copy_kernel<float, float>);
  const cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
  if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction ||
      e == cudaErrorUnsupportedPtxVersion) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  cu_check(e, "cudaFuncGetAttributes");
  return true;
}

void require_float(DType t, const char* op, const char* what) {
  if (t == DType::f32 || t == DType::bf16) return;
  throw Error(ErrorCode::device, str("CUDA: ", op, ": ", what, " is ", name_of(t), "; expected f32 or bf16"),
              "use `device: cpu`");
}

void convert(const ConstTensorView& x, const TensorView& y, GradMode mode) {
  require_float(x.dtype, "copy", "x");
  require_float(y.dtype, "copy", "y");
  if (y.rows == 0 || y.cols == 0) return;
  with_float_type(x.dtype, [&]<class X>() {
    with_float_type(y.dtype, [&]<class Y>() {
      launch(copy_kernel<X, Y>, blocks_for(y.rows * y.cols, kThreads), kThreads, 0, static_cast<const X*>(x.data),
             x.stride, static_cast<Y*>(y.data), y.stride, y.rows, y.cols, mode == GradMode::add);
    });
  });
}

void copy(Context&, const CopyArgs& args) {
  convert(args.x, args.y, args.mode);
}

}  // namespace bantam::cuda
