// SPDX-License-Identifier: Apache-2.0
// Dropout whose mask is a function, not a state: Philox4x32-10 (Salmon et al. 2011) of a key per row, the position in
// the sample, the layer, the site and the channel. A recompute draws the same mask; packing and batching do not move it.
#pragma once
#include "context.h"
#include "tensor.h"

namespace bantam {

/// y[t,c] (=|+=) keep(t,c) ? x[t,c] / (1 - p) : 0. It is its own backward.
struct DropoutArgs {
  ConstTensorView x;                  ///< [T, C] f32 or bf16
  float p = 0;                        ///< [0, 1)
  const uint64_t* row_key = nullptr;  ///< [T]: hash of seed, epoch and sample id
  const int32_t* position = nullptr;  ///< [T]: position within the sample
  int32_t layer = 0, site = 0;
  TensorView y;                       ///< like x in shape; f32 or bf16
  GradMode mode = GradMode::write;
};
void dropout(Context& ctx, const DropoutArgs& args);

/// A row key from its three parts (SplitMix64 finaliser over each).
uint64_t dropout_row_key(uint64_t seed, uint64_t epoch, uint64_t sample_id);

}  // namespace bantam
