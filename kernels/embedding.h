// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "context.h"
#include "tensor.h"
#include "weight_view.h"

namespace bantam {

/// y[t] = table[ids[t]] for t < T = y.rows. An id outside [0, table.rows) is Error(data) with its position where the
/// host can read ids; elsewhere its row of y is NaN, and check_token_ids() belongs to where the ids come from.
struct EmbeddingArgs {
  const int32_t* ids = nullptr;  ///< [T]
  WeightView table;              ///< [V, C], any format
  Math math = Math::f32;         ///< bf16: nf4 values are rounded to bf16 first
  TensorView y;                  ///< [T, C] f32 or bf16, overwritten
};
void embedding(Context& ctx, const EmbeddingArgs& args);

/// Error(data) naming `where`, position and value of the first id (host memory) outside [0, table_rows).
void check_token_ids(const char* where, std::span<const int32_t> ids, int64_t table_rows);

}  // namespace bantam
