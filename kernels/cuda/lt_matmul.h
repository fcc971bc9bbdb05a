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
  const void* start = nullptr;  ///< what beta multiplies, of c_type, in place of c; null: c
  int64_t start_stride = 0;
  const void* bias = nullptr;  ///< [N] of c_type, added to every row; a multiple of kBiasAlignment; null: none
};
/// The library's alignment preferences do not cover the bias, and its kernels may read 16 bytes of it at once.
inline constexpr size_t kBiasAlignment = 16;

/// c = alpha a b + beta start + bias, summed in f32, rounded once. Equal shapes, strides and alignments, all with or
/// all without a bias, use the same algorithm; it and what describes the product to the library are kept. A combination
/// that cuBLASLt refuses is Error(device).
void lt_matmul(const LtProduct& p, float alpha, float beta, void* c, void* scratch);

}  // namespace bantam::cuda
