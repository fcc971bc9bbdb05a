// SPDX-License-Identifier: Apache-2.0
// The matrix product: every linear layer, its dx, every LoRA product and every token reduction is one call of this.
// Row contract: row i of c depends on row i of the left operands and on the right operands only, never on the number
// of rows, tiles, tails or threads. The reduction runs over slices of k fixed by its length, added in order.
#pragma once
#include <span>

#include "context.h"
#include "tensor.h"
#include "weight_view.h"

namespace bantam {

/// How the right operand is stored. nt: b is [N, K] (a weight in forward, c = a b^T). nn: b is [K, N] (c = a b).
enum class BLayout : uint8_t { nt, nn };

/// One summand a * op(b) of a product.
struct ProductTerm {
  ConstTensorView a;  ///< [M, K] f32 or bf16; with a_transposed it is stored as [K, M] (a reduction over tokens)
  WeightView b;       ///< any format
  BLayout layout = BLayout::nt;
  bool a_transposed = false;
};

/// c (=|+=) alpha * (sum of terms) [+ bias] [+ residual]; summed in f32, rounded once to the dtype of c (a device may
/// round a bf16 c after each of two terms, the second first, and the bias of a bf16 c to bf16 before it adds it).
/// Two terms make a LoRA linear: y = x W^T + z B^T, or its dx = dy W + dz A.
struct ProductArgs {
  ProductTerm terms[2];
  int num_terms = 1;
  float alpha = 1.0f;
  const float* bias = nullptr;      ///< [N], optional
  ConstTensorView residual;         ///< [M, N] f32 or bf16, optional; may be c itself
  TensorView c;                     ///< [M, N] f32 or bf16
  GradMode mode = GradMode::write;  ///< add: c's old value is added in f32
  Math math = Math::f32;
};
void product(Context& ctx, const ProductArgs& args);

/// Products in a row, each with the numbers of product(). One may read what an earlier one wrote, but none may write to
/// the left operand of the first one's first term: where others read the same view, a device converts it once for all.
struct ProductsArgs {
  std::span<const ProductArgs> list;
};
void products(Context& ctx, const ProductsArgs& args);

}  // namespace bantam
