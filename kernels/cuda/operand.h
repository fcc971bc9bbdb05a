// SPDX-License-Identifier: Apache-2.0
// Operands in the type that a product through cuBLASLt takes; defined in product_cuda.cu. Host code only.
#pragma once
#include "../device_scratch.h"
#include "lt_matmul.h"

namespace bantam::cuda {

/// The operand as it is when it has type t, else converted into scratch, or decoded (decoded_weights.h). It is for
/// products that are launched before the next nf4 operand is asked for.
LtOperand operand(const ConstTensorView& a, DType t, char* scratch);
LtOperand operand(const WeightView& w, DType t, char* scratch);

}  // namespace bantam::cuda
