// SPDX-License-Identifier: Apache-2.0
// Operands in the type that a product through cuBLASLt takes; defined in product_cuda.cu. Host code only.
#pragma once
#include <cstddef>

#include "../product.h"
#include "lt_matmul.h"

namespace bantam::cuda {

/// The type that both operands of a term take. Math::bf16: bf16. Math::f32: f32, unless both are bf16, where the
/// products of bf16 numbers are exact in f32 anyway.
DType operand_type(const ProductTerm& t, Math math);
/// True when w is stored as a matrix of t.
bool is_plain(const WeightView& w, DType t);
/// Scratch for a dense matrix, a multiple of 256.
size_t dense_bytes(int64_t rows, int64_t cols, DType t);
/// The operand as it is when it has type t, else converted into scratch.
LtOperand operand(const ConstTensorView& a, DType t, char* scratch);
LtOperand operand(const WeightView& w, DType t, char* scratch);

}  // namespace bantam::cuda
