// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "context.h"

namespace bantam {

/// *sum_of_squares = sum_i grad[i]^2 in f64, over fixed slices of 65,536 elements added in order: the same for any
/// number of threads. Non-finite input gives a non-finite result. The norm is its square root.
struct GradNormArgs {
  const float* grad = nullptr;  ///< [n]
  int64_t n = 0;
  double* sum_of_squares = nullptr;  ///< [1], of the backend as grad is: adamw() reads it there
};
void grad_norm(Context& ctx, const GradNormArgs& args);

}  // namespace bantam
