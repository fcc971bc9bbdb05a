// SPDX-License-Identifier: Apache-2.0
// The gate of an MLP: SwiGLU / GeGLU (Shazeer 2020, arXiv 2002.05202).
#pragma once
#include "context.h"
#include "tensor.h"

namespace bantam {

enum class Act : uint8_t { silu, gelu_tanh };

/// y = act(gate) * up, element by element. All [T, C], f32 or bf16 of one dtype. y may be gate or up itself.
struct GatedActArgs {
  ConstTensorView gate, up;
  Act act = Act::silu;
  TensorView y;
};
void gated_act(Context& ctx, const GatedActArgs& args);

/// dgate = dy * up * act'(gate), dup = dy * act(gate); each written or added. dy f32 or bf16; dgate and dup f32 or bf16.
/// With mode write and equal dtype, dgate may be gate, and dup may be up (read before written, per element).
struct GatedActBackwardArgs {
  ConstTensorView gate, up, dy;
  Act act = Act::silu;
  TensorView dgate{}, dup{};  ///< absent: not wanted
  GradMode dgate_mode = GradMode::write, dup_mode = GradMode::write;
};
void gated_act_backward(Context& ctx, const GatedActBackwardArgs& args);

}  // namespace bantam
