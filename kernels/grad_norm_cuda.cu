// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
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

// The slices in order, by one thread; the others bring them near.
__global__ void __launch_bounds__(kThreads)
    sum_slices_kernel(const double* __restrict__ slices, int64_t n, double* __restrict__ sum) {
  CU_SHARED(double, some, [kThreads]);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kThreads) {
    const int64_t i = begin + threadIdx.x;
    __syncthreads();  // the ones before are still being added
    some[threadIdx.x] = i < n ? slices[i] : 0.0;
    __syncthreads();
    if (threadIdx.x != 0) continue;
    for (int k = 0; k < kThreads; ++k) total += some[k];  // zeros past the last, which change nothing
  }
  if (threadIdx.x == 0) *sum = total;
}
}  // namespace

// grad and sum_of_squares are device memory.
void grad_norm(Context&, const GradNormArgs& args) {
  const int64_t n = blocks_for(args.n, kSlice);
  auto* const slices = reinterpret_cast<double*>(workspace(device_scratch(args)));
  if (n > 0)
    launch(grad_squares_kernel, n, kThreads, 0, args.grad, args.n,
           rows_aligned4(args.grad, 0, DType::f32) ? args.n / 4 : 0, slices);
  launch(sum_slices_kernel, 1, kThreads, 0, slices, n, args.sum_of_squares);
}

}  // namespace bantam::cuda
