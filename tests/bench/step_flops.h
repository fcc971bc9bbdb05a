// SPDX-License-Identifier: Apache-2.0
// What a QLoRA step has to compute, by which speed is judged: 4 FLOPs per weight of the linears and token (forward and
// dx), 4 per weight of the head and trained token, attention's two products forward and five backward on the half of
// the square that the mask leaves. LoRA and recompute are not counted.
#pragma once
#include "finetune/model/op_kind.h"

namespace bantam {

/// `tokens` of a micro-batch, all trained, in sequences of `sequence` tokens.
inline double step_flops(const ModelGraph& graph, int64_t tokens, int64_t sequence) {
  double flops = 0;
  for (const LayerGraph& g : graph.stages)
    for (const Op& op : g.ops) {
      const auto width = [&](int v) { return static_cast<double>(g.values[static_cast<size_t>(v)].width); };
      if (op.kind == OpKind::linear) flops += 4 * static_cast<double>(tokens) * width(op.in[0]) * width(op.out[0]);
      if (op.kind == OpKind::attention) flops += 3.5 * forward_flops(graph.config, g, op, tokens, sequence);
      if (op.kind == OpKind::cross_entropy) flops += 2 * forward_flops(graph.config, g, op, tokens);
    }
  return flops;
}

}  // namespace bantam
