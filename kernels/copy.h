// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "context.h"
#include "tensor.h"

namespace bantam {

/// y (=|+=) x, element by element with conversion between f32 and bf16. [T, C] both.
struct CopyArgs {
  ConstTensorView x;
  TensorView y;
  GradMode mode = GradMode::write;
};
void copy(Context& ctx, const CopyArgs& args);

}  // namespace bantam
