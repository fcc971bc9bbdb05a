// SPDX-License-Identifier: Apache-2.0
// The loss that never builds the full logits: trained rows only, a chunk of rows at a time, two products in all.
#pragma once
#include <span>

#include "context.h"
#include "tensor.h"
#include "weight_view.h"

namespace bantam {

inline constexpr int32_t kIgnoreLabel = -100;

/// For each trained row t (labels[t] != kIgnoreLabel): logits = hidden[t] head^T (f32),
///   lse[t] = log sum exp logits,  loss[t] = lse[t] - logits[label],
///   dhidden[t] = weight[t] * ((softmax(logits) - onehot(label)) head): the unit-weight gradient, then the row weight.
/// Ignored rows: loss 0, lse 0, dhidden 0. The result of a row does not depend on the chunk (row contract).
/// A label outside [0, V) other than kIgnoreLabel: Error(data) with row, position and value.
struct CrossEntropyArgs {
  ConstTensorView hidden;           ///< [T, C] f32 or bf16
  const int32_t* labels = nullptr;  ///< [T], host
  const float* weights = nullptr;   ///< [T] f32; null: all 1
  WeightView head;                  ///< [V, C], any format
  Math math = Math::f32;
  float* loss = nullptr;     ///< [T] f32, overwritten, not weighted
  float* lse = nullptr;      ///< [T] f32, overwritten; null: not wanted
  TensorView dhidden;        ///< [T, C] f32, overwritten; absent: loss only, one product
  void* scratch = nullptr;   ///< from the caller, 64-byte aligned
  size_t scratch_bytes = 0;  ///< >= cross_entropy_scratch(..., chunk of one row)
};
void chunked_cross_entropy(Context& ctx, const CrossEntropyArgs& args);

/// Error(data) naming `where`, row and value of the first label that is neither in [0, vocab_size) nor kIgnoreLabel.
void check_labels(const char* where, std::span<const int32_t> labels, int64_t vocab_size);
/// Scratch that a chunk of `rows` rows takes: logits, gathered hidden rows, their gradient.
size_t cross_entropy_scratch(int64_t rows, int64_t hidden_size, int64_t vocab_size);
/// Most rows (>= 1, <= max_rows) of a chunk whose scratch is within `budget` bytes.
int64_t cross_entropy_chunk_rows(size_t budget, int64_t max_rows, int64_t hidden_size, int64_t vocab_size);

}  // namespace bantam
