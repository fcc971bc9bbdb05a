// SPDX-License-Identifier: Apache-2.0
// Root mean square normalisation (Zhang and Sennrich 2019, arXiv 1910.07467).
#pragma once
#include "context.h"
#include "tensor.h"

namespace bantam {

/// y[t,i] = x[t,i] * rstd[t] * weight[i],  rstd[t] = 1 / sqrt(mean_i x[t,i]^2 + eps).
/// x, y: [T, C] f32 or bf16 each; sums in f32 in an order that depends on C only. y may be x itself (same view).
struct RmsNormArgs {
  ConstTensorView x;
  const float* weight = nullptr;  ///< [C]
  float eps = 1e-5f;
  TensorView y;                   ///< [T, C], overwritten
  float* rstd = nullptr;          ///< [T], overwritten
};
void rms_norm(Context& ctx, const RmsNormArgs& args);

/// dx[t,i] = rstd[t] * (weight[i]*dy[t,i] - x[t,i] * rstd[t]^2 * mean_j(weight[j]*dy[t,j]*x[t,j])), written or added.
/// dweight[i] += sum_t dy[t,i] * x[t,i] * rstd[t]: always added, over fixed slices of T in order; null when frozen.
struct RmsNormBackwardArgs {
  ConstTensorView x;              ///< [T, C], as in forward
  const float* weight = nullptr;  ///< [C]
  const float* rstd = nullptr;    ///< [T], from forward
  ConstTensorView dy;             ///< [T, C] f32 or bf16
  TensorView dx{};                ///< [T, C] f32 or bf16; absent: not wanted
  GradMode mode = GradMode::write;
  float* dweight = nullptr;       ///< [C], added to
};
void rms_norm_backward(Context& ctx, const RmsNormBackwardArgs& args);

}  // namespace bantam
