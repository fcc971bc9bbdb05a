// SPDX-License-Identifier: Apache-2.0
// AdamW with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101), as torch.optim.AdamW computes it.
#pragma once
#include <cstdint>

#include "context.h"

namespace bantam {

/// g = grad_scale * grad;  param *= 1 - lr*weight_decay;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
/// param -= (lr / (1 - b1^step)) * m / (sqrt(v) / sqrt(1 - b2^step) + eps).
struct AdamwArgs {
  float* param = nullptr;       ///< [n], updated
  const float* grad = nullptr;  ///< [n]
  float *m = nullptr, *v = nullptr;  ///< [n], updated
  int64_t n = 0;
  int64_t step = 1;             ///< >= 1
  /// Doubles, as torch holds them: 1 - 0.999f is off by 1e-5. The arithmetic per element is f32.
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  float grad_scale = 1;         ///< clipping: min(1, max_norm / norm)
};
void adamw(Context& ctx, const AdamwArgs& args);

}  // namespace bantam
