// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding in the half-split form of HF transformers (Su et al. 2021, arXiv 2104.09864).
#pragma once
#include "context.h"
#include "tensor.h"

namespace bantam {

/// With half = head_dim / 2, for each head and i < half:
///   y[i]      = x[i] * cos[t,i] - x[i+half] * sin[t,i]
///   y[i+half] = x[i+half] * cos[t,i] + x[i] * sin[t,i]
/// `inverse` rotates back (sin negated): the backward of rope, which needs no saved value.
struct RopeArgs {
  ConstTensorView x;         ///< [T, heads * head_dim] f32 or bf16
  ConstTensorView cos, sin;  ///< [T, head_dim / 2] f32, already at each token's position
  int64_t head_dim = 0;      ///< even, divides x.cols
  bool inverse = false;
  TensorView y;              ///< like x; may be x itself when mode is write
  GradMode mode = GradMode::write;
};
void rope(Context& ctx, const RopeArgs& args);

}  // namespace bantam
