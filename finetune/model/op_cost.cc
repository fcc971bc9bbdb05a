// SPDX-License-Identifier: Apache-2.0
// What an op costs and takes: FLOPs, bytes, scratch. What it does is in op_kind.cc.
#include <algorithm>

#include "../../kernels/cross_entropy.h"
#include "op_kind.h"

namespace bantam {

namespace {
int64_t width(const LayerGraph& g, int value) {
  return value < 0 ? 0 : g.values[static_cast<size_t>(value)].width;
}
}  // namespace

double forward_flops(const ModelConfig& c, const LayerGraph& g, const Op& op, int64_t tokens, int64_t sequence) {
  const double t = static_cast<double>(tokens);
  const double s = static_cast<double>(sequence > 0 ? std::min(sequence, tokens) : tokens);
  switch (op.kind) {
    case OpKind::linear:  // z B^T is part of it
      return 2 * t * static_cast<double>(width(g, op.out[0])) * static_cast<double>(width(g, op.in[0]) + op.lora_rank);
    case OpKind::lora_down:
      return 2 * t * static_cast<double>(width(g, op.in[0]) * width(g, op.out[0]));
    case OpKind::attention:
      return 2 * t * s * static_cast<double>(width(g, op.in[0]));  // two products, half of the square
    case OpKind::cross_entropy:
      return 2 * t * static_cast<double>(c.hidden_size * c.vocab_size);
    default:
      return 0;
  }
}

double backward_flops(const ModelConfig& c, const LayerGraph& g, const Op& op, int64_t tokens, bool dx,
                      int64_t sequence) {
  const double t = static_cast<double>(tokens);
  switch (op.kind) {
    case OpKind::linear: {
      const double out = static_cast<double>(width(g, op.out[0])), r = static_cast<double>(op.lora_rank);
      const double in = static_cast<double>(width(g, op.in[0]));
      return 2 * t * (2 * out * r + (dx ? out * in + (op.lora_dx_fused ? r * in : 0) : 0));
    }
    case OpKind::lora_down:
      return 2 * t * static_cast<double>(width(g, op.in[0]) * width(g, op.out[0])) * (dx && !op.lora_dx_fused ? 2 : 1);
    case OpKind::attention:
      return 3.5 * forward_flops(c, g, op, tokens, sequence);  // seven products in two passes
    case OpKind::cross_entropy:
      return 2 * forward_flops(c, g, op, tokens);
    default:
      return 0;
  }
}

double forward_bytes(const LayerGraph& g, const Op& op, int64_t tokens) {
  double row = 0;
  for (const auto* list : {&op.in, &op.out})
    for (const int v : *list)
      if (v >= 0) {
        const ValueInfo& i = g.values[static_cast<size_t>(v)];
        row += static_cast<double>(i.width) * static_cast<double>(size_of(i.dtype));
      }
  return row * static_cast<double>(tokens);
}

// What backward reads, and for each input that may get a gradient, that gradient; the gradient of each output.
double backward_bytes(const LayerGraph& g, const Op& op, int64_t tokens) {
  const OpKindInfo& k = info(op.kind);
  double row = 0;
  const auto count = [&](int v, bool value, bool gradient) {
    if (v < 0) return;
    const ValueInfo& i = g.values[static_cast<size_t>(v)];
    row +=
        static_cast<double>(i.width) * static_cast<double>(size_of(i.dtype)) * ((value ? 1 : 0) + (gradient ? 1 : 0));
  };
  for (size_t i = 0; i < op.in.size(); ++i) count(op.in[i], k.backward_reads_in >> i & 1u, k.grad_in >> i & 1u);
  for (size_t j = 0; j < op.out.size(); ++j) count(op.out[j], k.backward_reads_out >> j & 1u, k.grad_out >> j & 1u);
  return row * static_cast<double>(tokens);
}

namespace {
size_t loss_scratch(const ModelConfig& c, const ScratchSize& s) {
  return cross_entropy_scratch(cross_entropy_chunk_rows(s.loss_chunk_bytes, s.tokens, c.hidden_size, c.vocab_size),
                               c.hidden_size, c.vocab_size);
}
}  // namespace

size_t forward_scratch(const ModelConfig& c, const LayerGraph&, const Op& op, const ScratchSize& s) {
  return op.kind == OpKind::cross_entropy ? loss_scratch(c, s) : 0;
}

size_t backward_scratch(const ModelConfig& c, const LayerGraph&, const Op& op, const ScratchSize& s) {
  if (op.kind == OpKind::cross_entropy) return loss_scratch(c, s);
  if (op.kind == OpKind::attention) return static_cast<size_t>(s.tokens * c.num_attention_heads) * sizeof(float);
  return 0;
}

std::string product_weight(const Op& op, bool backward, bool dx) {
  const bool has = op.kind == OpKind::cross_entropy || (op.kind == OpKind::linear && (dx || !backward));
  return has ? op.module + ".weight" : "";
}

bool writes_part(const Op& op, size_t i) {
  return op.kind == OpKind::linear && i == 1;
}

bool has_trained_parameters(const LayerGraph&, const Op& op) {
  return op.kind == OpKind::lora_down || op.trainable || (op.kind == OpKind::linear && op.in[1] >= 0);
}

}  // namespace bantam
