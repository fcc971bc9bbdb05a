// SPDX-License-Identifier: Apache-2.0
// NF4 on the device, by the definition in weight_view.h.
#pragma once
#include "cu_portable.cuh"
// The portable header comes first.
#include "../nf4_codebook.h"
#include "../weight_view.h"

namespace bantam::cuda {

__constant__ const float kNf4Values[16] = {BANTAM_NF4_VALUES};

/// The code into `table`, for the whole block; one barrier. Divergent look-ups in constant memory would run one after
/// the other.
__device__ __forceinline__ void load_nf4_table(float* table) {
  if (threadIdx.x < 16) table[threadIdx.x] = kNf4Values[threadIdx.x];
  __syncthreads();
}

/// Scale of nf4 block b. Not fused, as the contract says: scales are the same bits everywhere.
__device__ __forceinline__ float nf4_scale(int64_t b, const float* __restrict__ absmax,
                                           const uint8_t* __restrict__ absmax_q,
                                           const float* __restrict__ nested_absmax,
                                           const float* __restrict__ nested_code, float nested_offset) {
  if (absmax) return absmax[b];
  return __fadd_rn(__fmul_rn(nested_code[absmax_q[b]], nested_absmax[b / WeightView::kNestedBlock]), nested_offset);
}

}  // namespace bantam::cuda
