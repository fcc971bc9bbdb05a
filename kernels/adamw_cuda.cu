// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include <cmath>

#include "adamw.h"
#include "cuda/cuda_ops.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 256;

struct AdamwScalars {  // in double on the host, rounded once, as torch does
  float beta1, rest1, beta2, rest2, keep, step_size, root2, eps, grad_scale;
};

// Rounded as the CPU backend does, not as the compiler would fuse: an element's numbers do not depend on its place.
__device__ __forceinline__ void adamw_element(const AdamwScalars& s, float grad, float& param, float& m, float& v) {
  const float g = __fmul_rn(grad, s.grad_scale);
  m = fmaf(m, s.beta1, __fmul_rn(g, s.rest1));
  v = fmaf(v, s.beta2, __fmul_rn(__fmul_rn(g, g), s.rest2));
  const float denominator = __fadd_rn(sqrtf(v) / s.root2, s.eps);
  param = __fadd_rn(__fmul_rn(param, s.keep), -(__fmul_rn(s.step_size, m) / denominator));
}

// One thread takes four elements; `quads`: how many fours may be loaded at once.
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m,
                 float* __restrict__ v, int64_t n, int64_t quads, AdamwScalars s) {
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, i = 4 * quad;
  if (quad < quads) {
    float p4[4], g4[4], m4[4], v4[4];
    load4(param + i, p4);
    load4(grad + i, g4);
    load4(m + i, m4);
    load4(v + i, v4);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) adamw_element(s, g4[j], p4[j], m4[j], v4[j]);
    store4(param + i, p4);
    store4(m + i, m4);
    store4(v + i, v4);
  } else {
    for (int64_t k = i; k < n && k < i + 4; ++k) adamw_element(s, grad[k], param[k], m[k], v[k]);
  }
}
}  // namespace

// All pointers are device memory.
void adamw(Context&, const AdamwArgs& a) {
  const double step = static_cast<double>(a.step);
  const double correction1 = 1 - std::pow(a.beta1, step), correction2 = 1 - std::pow(a.beta2, step);
  const AdamwScalars s = {.beta1 = static_cast<float>(a.beta1),
                          .rest1 = static_cast<float>(1 - a.beta1),
                          .beta2 = static_cast<float>(a.beta2),
                          .rest2 = static_cast<float>(1 - a.beta2),
                          .keep = static_cast<float>(1 - a.lr * a.weight_decay),
                          .step_size = static_cast<float>(a.lr / correction1),
                          .root2 = static_cast<float>(std::sqrt(correction2)),
                          .eps = static_cast<float>(a.eps),
                          .grad_scale = a.grad_scale};
  bool aligned = true;
  for (const float* p :
       {static_cast<const float*>(a.param), a.grad, static_cast<const float*>(a.m), static_cast<const float*>(a.v)})
    aligned = aligned && rows_aligned4(p, 0, DType::f32);
  launch(adamw_kernel, blocks_for(a.n, 4 * kThreads), kThreads, 0, a.param, a.grad, a.m, a.v, a.n,
         aligned ? a.n / 4 : 0, s);
}

}  // namespace bantam::cuda
