// SPDX-License-Identifier: Apache-2.0
// Causal grouped-query attention over packed sequences: the online softmax of FlashAttention-2 (Dao 2023,
// arXiv 2307.08691); backward as two passes without atomics.
#pragma once
#include "context.h"
#include "tensor.h"

namespace bantam {

/// Sequence s owns rows [cu_q[s], cu_q[s+1]) of q and [cu_k[s], cu_k[s+1]) of k and v; its queries are the last ones of
/// its keys (training: the two are the same). Query i sees keys 0 .. len_k - len_q + i of its own sequence only.
/// With a window, query i sees key j only if i - j < window, both counted as keys of the sequence (HF's
/// sliding_window). Query head h reads key head h / (heads / kv_heads).
struct AttentionShape {
  const int32_t* cu_q = nullptr;  ///< [num_seqs + 1], host
  const int32_t* cu_k = nullptr;  ///< [num_seqs + 1], host
  int64_t num_seqs = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;     ///< usually 1 / sqrt(head_dim)
  int64_t window = 0;  ///< how many keys a query sees at most, its own included; 0: all up to its own
  float softcap = 0;   ///< scores are softcap * tanh(scale * q k^T / softcap); 0: scale * q k^T
};

/// o = softmax(score) v;  lse[t, h] = log sum exp of the scores that the query sees. Softmax and sums in f32.
struct AttentionArgs {
  AttentionShape shape;
  ConstTensorView q;     ///< [Tq, heads * head_dim] f32 or bf16
  ConstTensorView k, v;  ///< [Tk, kv_heads * head_dim], dtype of q
  TensorView o;          ///< like q, overwritten
  TensorView lse;        ///< [Tq, heads] f32, overwritten
  Math math = Math::f32;
};
void attention(Context& ctx, const AttentionArgs& args);

/// Gradients; each is overwritten, or not wanted and absent. delta = rowsum(do * o) is computed inside. Two
/// deterministic passes: dq by query blocks, then dk and dv by key blocks (sum over the query heads of the group in
/// order).
struct AttentionBackwardArgs {
  AttentionShape shape;  ///< cu_q == cu_k
  ConstTensorView q, k, v, o, lse, dout;
  TensorView delta;       ///< [T, heads] f32, scratch, overwritten
  TensorView dq, dk, dv;  ///< f32 or bf16, overwritten; each optional
  Math math = Math::f32;
};
void attention_backward(Context& ctx, const AttentionBackwardArgs& args);

}  // namespace bantam
