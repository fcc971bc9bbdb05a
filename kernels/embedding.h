// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "context.h"
#include "tensor.h"
#include "weight_view.h"

namespace bantam {

/// y[t] = table[ids[t]] for t < T = y.rows. An id outside [0, table.rows) is Error(data) with its position.
struct EmbeddingArgs {
  const int32_t* ids = nullptr;  ///< [T], checked by the entry, which copies them where the host cannot read them
  WeightView table;              ///< [V, C], any format
  Math math = Math::f32;         ///< bf16: nf4 values are rounded to bf16 first
  TensorView y;                  ///< [T, C] f32 or bf16, overwritten
};
void embedding(Context& ctx, const EmbeddingArgs& args);

}  // namespace bantam
