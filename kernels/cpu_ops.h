// SPDX-License-Identifier: Apache-2.0
// The CPU backend's functions, one per entry of the Backend table; each lives in <op>_cpu.cc. Not a public header.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend.h"

namespace bantam::cpu {

/// Rows of a parallel_for piece for element-wise work: enough to pay for the hand-over, a function of the width only.
inline int64_t rows_per_piece(int64_t cols) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols));
}

void embedding(Context& ctx, const EmbeddingArgs& args);
void rms_norm(Context& ctx, const RmsNormArgs& args);
void rms_norm_backward(Context& ctx, const RmsNormBackwardArgs& args);
void rope(Context& ctx, const RopeArgs& args);
void product(Context& ctx, const ProductArgs& args);
void products(Context& ctx, const ProductsArgs& args);
void gated_act(Context& ctx, const GatedActArgs& args);
void gated_act_backward(Context& ctx, const GatedActBackwardArgs& args);
void attention(Context& ctx, const AttentionArgs& args);
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);
void cross_entropy(Context& ctx, const CrossEntropyArgs& args);
void dropout(Context& ctx, const DropoutArgs& args);
void copy(Context& ctx, const CopyArgs& args);
void adamw(Context& ctx, const AdamwArgs& args);
void grad_norm(Context& ctx, const GradNormArgs& args);
void quantize_nf4(Context& ctx, const QuantizeNf4Args& args);

}  // namespace bantam::cpu
