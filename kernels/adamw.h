// SPDX-License-Identifier: Apache-2.0
// AdamW with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101), as torch.optim.AdamW computes it.
#pragma once
#include <cstdint>

#include "context.h"

namespace bantam {

/// One step's settings. Doubles, as torch holds them: 1 - 0.999f is off by 1e-5.
struct AdamwStep {
  int64_t step = 1;  ///< >= 1
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

/// What the elements of a step share, rounded to f32 once. adamw() reads it in the backend's memory, so that a recorded
/// step can be replayed with other values.
struct AdamwScalars {
  float beta1, rest1;  ///< beta1, 1 - beta1
  float beta2, rest2;
  float keep;       ///< 1 - lr * weight_decay
  float step_size;  ///< lr / (1 - beta1^step)
  float root2;      ///< sqrt(1 - beta2^step)
  float eps;
};
/// Error(internal) for a step below 1, a beta outside [0, 1), a negative eps.
AdamwScalars adamw_scalars(const AdamwStep& step);

/// With norm = sqrt(*sum_of_squares) and clip = max_grad_norm / norm where that is below 1 and wanted, else 1:
///   g = clip * grad;  param *= 1 - lr*weight_decay;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
///   param -= (lr / (1 - b1^step)) * m / (sqrt(v) / sqrt(1 - b2^step) + eps).
/// A norm that is not finite changes nothing. The arithmetic per element is f32, that of clip f64.
struct AdamwArgs {
  float* param = nullptr;            ///< [n], updated
  const float* grad = nullptr;       ///< [n]
  float *m = nullptr, *v = nullptr;  ///< [n], updated
  int64_t n = 0;
  const AdamwScalars* scalars = nullptr;   ///< [1], of the backend
  const double* sum_of_squares = nullptr;  ///< [1], of the backend: grad_norm()'s; null: no clipping, no look at it
  double max_grad_norm = 0;                ///< 0: no clipping
};
void adamw(Context& ctx, const AdamwArgs& args);

}  // namespace bantam
