// SPDX-License-Identifier: Apache-2.0
// How a block of values becomes an NF4 scale and codes, as bitsandbytes does on the CPU: the one rule of host and
// device. Not a public header.
#pragma once
#include "nf4_codebook.h"

#ifndef BANTAM_HOST_DEVICE  // cu_portable.cuh, which kernel files include first, has it for device code
#define BANTAM_HOST_DEVICE
#endif

namespace bantam {

/// The scale of a block from the greatest absolute value of it (NaN passed over). A block shorter than the others, the
/// tail, divides by its scale, which is never below the smallest; the others multiply by the reciprocal.
struct Nf4Scale {
  static constexpr float kSmallest = 1e-38f;  // a smaller one has no finite reciprocal
  float absmax;                               ///< what is stored
  float inverse;

  BANTAM_HOST_DEVICE constexpr Nf4Scale(float greatest, bool tail) : absmax(greatest), inverse(0) {
    const float usable = greatest > kSmallest ? greatest : kSmallest;
    if (tail) absmax = usable;
    inverse = 1.0f / usable;
  }
  BANTAM_HOST_DEVICE constexpr float scaled(float v, bool tail) const { return tail ? v / absmax : v * inverse; }
};

/// The code of a scaled value: the number of midpoints between codes that are below it. NaN is 0.
BANTAM_HOST_DEVICE constexpr int nf4_code(float scaled) {
  constexpr float kValues[16] = {BANTAM_NF4_VALUES};
  int code = 0;
  for (int i = 0; i < 15; ++i) code += scaled > (kValues[i] + kValues[i + 1]) / 2 ? 1 : 0;
  return code;
}

}  // namespace bantam
