// SPDX-License-Identifier: Apache-2.0
// One matrix product through cuBLASLt, in row-major terms. Host code only.
#pragma once
#include <cstdint>

#include "../device_scratch.h"
#include "../dtype.h"

namespace bantam::cuda {

struct LtOperand {
  const void* data;
  int64_t stride;   ///< elements between stored rows
  bool transposed;  ///< the stored matrix is the transpose of the operand
};
struct LtProduct {
  int64_t m, n, k;
  DType operand_type;  ///< of a and b: f32 or bf16
  LtOperand a, b;      ///< [M, K] and [K, N]
  DType c_type;        ///< f32, or bf16 with bf16 operands
  int64_t c_stride;
  /// The m that the algorithm is chosen for; 0: m itself. Products with the same one, of no more rows than that, add up
  /// a row in the same order.
  int64_t algorithm_m = 0;
  /// What beta multiplies, of c_type; null: c's old value.
  const void* addend = nullptr;
  int64_t addend_stride = 0;
};

/// c = alpha a b + beta addend, summed in f32, rounded once. Equal shapes, strides and alignments use the same
/// algorithm; whether the addend is c makes no difference. A combination that cuBLASLt refuses is Error(device).
void lt_matmul(const LtProduct& p, float alpha, float beta, void* c, void* scratch);

}  // namespace bantam::cuda
