// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "context.h"
#include "tensor.h"

namespace bantam {

/// NF4 codes and plain scales of a matrix, in blocks of 64 along its flattened elements; a tail shorter than a block is
/// one block of its own. The same bits on every backend, those of bitsandbytes on the CPU. Values should be finite: a
/// NaN and an infinity get code 0, an infinity also makes its block's scale infinite and the rest of it code 7.
struct QuantizeNf4Args {
  ConstTensorView x;         ///< [R, C] f32 or bf16, dense (stride = C)
  uint8_t* codes = nullptr;  ///< [(R*C + 1) / 2], element 2i in the high half; the spare half of an odd R*C is 7, zero
  float* absmax = nullptr;   ///< [(R*C + 63) / 64]
};
void quantize_nf4(Context& ctx, const QuantizeNf4Args& args);

/// The same of n values that start at a block's start, on the calling thread, in host memory.
void nf4_quantise(const float* x, int64_t n, uint8_t* codes, float* absmax);

}  // namespace bantam
