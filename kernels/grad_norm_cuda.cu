// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include <vector>

#include "cuda/cuda_ops.h"
#include "device_scratch.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 256;
constexpr int64_t kSlice = kGradNormSlice;

// One block per slice; a thread takes four neighbours at a time whether they can be loaded at once or not, so the order
// of the sum depends on n only. The square of an f32 is exact in f64.
__global__ void __launch_bounds__(kThreads)
    grad_squares_kernel(const float* __restrict__ grad, int64_t n, int64_t quads, double* __restrict__ slices) {
  CU_SHARED(double, shared, [32]);
  const int64_t begin = blockIdx.x * kSlice, end = begin + kSlice < n ? begin + kSlice : n;
  double sum[4] = {};
  for (int64_t i = begin + 4 * static_cast<int64_t>(threadIdx.x); i < end; i += 4 * kThreads) {
    float v[4];
    if (i < 4 * quads) {
      load4(grad + i, v);
    } else {
      CU_UNROLL
      for (int j = 0; j < 4; ++j) v[j] = i + j < end ? grad[i + j] : 0.0f;
    }
    CU_UNROLL
    for (int j = 0; j < 4; ++j) sum[j] += static_cast<double>(v[j]) * static_cast<double>(v[j]);
  }
  const double total = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), shared);
  if (threadIdx.x == 0) slices[blockIdx.x] = total;
}
}  // namespace

// grad is device memory; sum_of_squares is the host's: the slices come back and are added here, in order.
void grad_norm(Context&, const GradNormArgs& args) {
  double total = 0;
  if (args.n > 0) {
    std::vector<double> slices(static_cast<size_t>(blocks_for(args.n, kSlice)));
    const size_t bytes = slices.size() * sizeof(double);
    auto* on_device = reinterpret_cast<double*>(workspace(device_scratch(args)));
    launch(grad_squares_kernel, static_cast<int64_t>(slices.size()), kThreads, 0, args.grad, args.n,
           rows_aligned4(args.grad, 0, DType::f32) ? args.n / 4 : 0, on_device);
    download(slices.data(), on_device, bytes);
    for (const double s : slices) total += s;
  }
  *args.sum_of_squares = total;
}

}  // namespace bantam::cuda
