// SPDX-License-Identifier: Apache-2.0
// The factor of gradient clipping, the same on host and device. Not a public header.
#pragma once
#include <cmath>

#ifndef BANTAM_HOST_DEVICE
#define BANTAM_HOST_DEVICE
#endif

namespace bantam {

/// max_norm / norm where that is below 1 and max_norm is not 0, else 1; NaN when the norm is not finite.
BANTAM_HOST_DEVICE inline float clip_factor(double sum_of_squares, double max_norm) {
  const double norm = sqrt(sum_of_squares);
  if (!(norm < HUGE_VAL)) return NAN;
  return max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

}  // namespace bantam
