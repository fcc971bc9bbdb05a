// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "adamw.h"
#include "clip_factor.h"
#include "cuda/cuda_ops.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 256;

// Rounded as the CPU backend does, not as the compiler would fuse: an element's numbers do not depend on its place.
__device__ __forceinline__ void adamw_element(const AdamwScalars& s, float clip, float grad, float& param, float& m,
                                              float& v) {
  const float g = __fmul_rn(grad, clip);
  m = fmaf(m, s.beta1, __fmul_rn(g, s.rest1));
  v = fmaf(v, s.beta2, __fmul_rn(__fmul_rn(g, g), s.rest2));
  const float denominator = __fadd_rn(sqrtf(v) / s.root2, s.eps);
  param = __fadd_rn(__fmul_rn(param, s.keep), -(__fmul_rn(s.step_size, m) / denominator));
}

// One thread takes four elements; `quads`: how many fours may be loaded at once.
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m,
                 float* __restrict__ v, int64_t n, int64_t quads, const AdamwScalars* __restrict__ scalars,
                 const double* __restrict__ sum_of_squares, double max_grad_norm) {
  CU_SHARED(float, shared_clip, [1]);
  if (threadIdx.x == 0) shared_clip[0] = sum_of_squares ? clip_factor(*sum_of_squares, max_grad_norm) : 1.0f;
  __syncthreads();
  const float clip = shared_clip[0];
  if (clip != clip) return;  // NaN
  const AdamwScalars s = *scalars;
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, i = 4 * quad;
  if (quad < quads) {
    float p4[4], g4[4], m4[4], v4[4];
    load4(param + i, p4);
    load4(grad + i, g4);
    load4(m + i, m4);
    load4(v + i, v4);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) adamw_element(s, clip, g4[j], p4[j], m4[j], v4[j]);
    store4(param + i, p4);
    store4(m + i, m4);
    store4(v + i, v4);
  } else {
    for (int64_t k = i; k < n && k < i + 4; ++k) adamw_element(s, clip, grad[k], param[k], m[k], v[k]);
  }
}
}  // namespace

// All pointers are device memory.
void adamw(Context&, const AdamwArgs& a) {
  bool aligned = true;
  for (const float* p :
       {static_cast<const float*>(a.param), a.grad, static_cast<const float*>(a.m), static_cast<const float*>(a.v)})
    aligned = aligned && rows_aligned4(p, 0, DType::f32);
  launch(adamw_kernel, blocks_for(a.n, 4 * kThreads), kThreads, 0, a.param, a.grad, a.m, a.v, a.n,
         aligned ? a.n / 4 : 0, a.scalars, a.sum_of_squares, a.max_grad_norm);
}

}  // namespace bantam::cuda
