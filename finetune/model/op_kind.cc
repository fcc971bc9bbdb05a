// SPDX-License-Identifier: Apache-2.0
#include "op_kind.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../kernels/attention.h"
#include "../../kernels/copy.h"
#include "../../kernels/cross_entropy.h"
#include "../../kernels/dropout.h"
#include "../../kernels/embedding.h"
#include "../../kernels/gated_act.h"
#include "../../kernels/product.h"
#include "../../kernels/rms_norm.h"
#include "../../kernels/rope.h"

namespace bantam {

namespace {

std::string weight_name(const OpRun& r) {
  return r.op.module + ".weight";
}

const AdapterSet::Adapter& adapter(const OpRun& r) {
  const AdapterSet::Adapter* a = r.adapters ? r.adapters->find(r.graph.prefix + r.op.module) : nullptr;
  if (!a)
    throw Error(ErrorCode::internal,
                str("graph has an adapter at ", r.graph.prefix, r.op.module, ", the adapter set has not"));
  return *a;
}

// ---- embedding
void embedding_forward(OpRun& r) {
  embedding(r.ctx, {.ids = r.step.ids, .table = r.weights.matrix(weight_name(r)), .math = r.math(), .y = r.out[0]});
}

// ---- rms_norm
const float* norm_weight(const OpRun& r) {
  if (r.op.trainable) {
    const auto v = r.adapters->value(r.adapters->find_parameter(r.graph.prefix + weight_name(r)));
    return v.row<float>(0);
  }
  return r.weights.vector(weight_name(r)).data();
}
void rms_norm_forward(OpRun& r) {
  rms_norm(r.ctx, {.x = r.in[0],
                   .weight = norm_weight(r),
                   .eps = static_cast<float>(r.model.config.rms_norm_eps),
                   .y = r.out[0],
                   .rstd = r.out[1].row<float>(0)});
}
void rms_norm_back(OpRun& r) {
  float* dweight = nullptr;
  if (r.op.trainable) dweight = r.grads->grad(r.grads->find_parameter(r.graph.prefix + weight_name(r))).row<float>(0);
  rms_norm_backward(r.ctx, {.x = r.in[0],
                            .weight = norm_weight(r),
                            .rstd = r.out[1].row<float>(0),
                            .dy = r.dout[0],
                            .dx = r.din[0],
                            .mode = r.mode[0],
                            .dweight = dweight});
}

// ---- lora_down: z = scale * x A^T. The gradient of z carries the scale already (see linear_backward).
void lora_down_forward(OpRun& r) {
  product(r.ctx, {.terms = {{.a = r.in[0], .b = r.adapters->value(adapter(r).a)}},
                  .alpha = r.adapters->config().scale(),
                  .c = r.out[0],
                  .math = r.math()});
}
void lora_down_backward(OpRun& r) {
  const auto& a = adapter(r);
  product(r.ctx,
          {.terms = {{.a = r.dout[0], .b = ConstTensorView(r.in[0]), .layout = BLayout::nn, .a_transposed = true}},
           .c = r.grads->grad(a.a),
           .mode = GradMode::add,
           .math = r.math()});
  if (r.din[0])
    product(r.ctx, {.terms = {{.a = r.dout[0], .b = r.adapters->value(a.a), .layout = BLayout::nn}},
                    .c = r.din[0],
                    .mode = r.mode[0],
                    .math = r.math()});
}

// ---- linear: y = x W^T + z B^T + bias + residual, rounded once
void linear_forward(OpRun& r) {
  ProductArgs p{.terms = {{.a = r.in[0], .b = r.weights.matrix(weight_name(r))}},
                .residual = r.in[2],
                .c = r.out[0],
                .math = r.math()};
  if (r.op.has_bias) p.bias = r.weights.vector(r.op.module + ".bias").data();
  if (r.in[1]) p.terms[p.num_terms++] = {.a = r.in[1], .b = r.adapters->value(adapter(r).b)};
  product(r.ctx, p);
}
void linear_backward(OpRun& r) {
  const ConstTensorView dy = r.dout[0];
  const AdapterSet::Adapter* a = r.op.in[1] >= 0 ? &adapter(r) : nullptr;
  if (a) {
    product(r.ctx, {.terms = {{.a = dy, .b = ConstTensorView(r.in[1]), .layout = BLayout::nn, .a_transposed = true}},
                    .c = r.grads->grad(a->b),
                    .mode = GradMode::add,
                    .math = r.math()});
    product(r.ctx, {.terms = {{.a = dy, .b = r.adapters->value(a->b), .layout = BLayout::nn}},
                    .alpha = r.adapters->config().scale(),
                    .c = r.din[1],
                    .math = r.math()});
  }
  if (r.din[0]) {
    ProductArgs p{.terms = {{.a = dy, .b = r.weights.matrix(weight_name(r)), .layout = BLayout::nn}},
                  .c = r.din[0],
                  .mode = r.mode[0],
                  .math = r.math()};
    if (a && r.op.lora_dx_fused)
      p.terms[p.num_terms++] = {.a = r.din[1], .b = r.adapters->value(a->a), .layout = BLayout::nn};
    product(r.ctx, p);
  }
  if (r.din[2]) copy(r.ctx, {.x = dy, .y = r.din[2], .mode = r.mode[2]});
}

// ---- rope
void rope_run(OpRun& r, const TensorView& x, const TensorView& y, bool inverse, GradMode mode) {
  rope(r.ctx, {.x = x,
               .cos = r.step.cos,
               .sin = r.step.sin,
               .head_dim = r.model.config.head_dim,
               .inverse = inverse,
               .y = y,
               .mode = mode});
}
void rope_forward(OpRun& r) {
  rope_run(r, r.in[0], r.out[0], false, GradMode::write);
}
void rope_backward(OpRun& r) {
  if (r.din[0]) rope_run(r, r.dout[0], r.din[0], true, r.mode[0]);
}

// ---- attention
AttentionShape attention_shape(const OpRun& r) {
  const ModelConfig& c = r.model.config;
  return {.cu_q = r.step.cu_seqlens,
          .cu_k = r.step.cu_seqlens,
          .num_seqs = r.step.num_seqs,
          .heads = c.num_attention_heads,
          .kv_heads = c.num_key_value_heads,
          .head_dim = c.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)))};
}
void attention_forward(OpRun& r) {
  AttentionArgs a{.shape = attention_shape(r),
                  .q = r.in[0],
                  .k = r.in[1],
                  .v = r.in[2],
                  .o = r.out[0],
                  .lse = r.out[1],
                  .math = r.math()};
  int32_t cu_k[2] = {0, 0};
  if (r.cache) {  // one sequence: append its new keys and values, then attend to all of them
    KvCache& c = *r.cache;
    if (r.step.num_seqs != 1 || c.length + r.step.tokens > c.k.rows)
      throw Error(ErrorCode::internal, str("KV cache: ", c.length, " + ", r.step.tokens, " tokens of ", r.step.num_seqs,
                                           " sequences, room for ", c.k.rows, " of one"));
    copy(r.ctx, {.x = r.in[1], .y = c.k.row_range(c.length, r.step.tokens)});
    copy(r.ctx, {.x = r.in[2], .y = c.v.row_range(c.length, r.step.tokens)});
    c.length += r.step.tokens;
    cu_k[1] = static_cast<int32_t>(c.length);
    a.shape.cu_k = cu_k;
    a.k = c.k.row_range(0, c.length);
    a.v = c.v.row_range(0, c.length);
  }
  attention(r.ctx, a);
}
void attention_back(OpRun& r) {
  attention_backward(r.ctx, {.shape = attention_shape(r),
                             .q = r.in[0],
                             .k = r.in[1],
                             .v = r.in[2],
                             .o = r.out[0],
                             .lse = r.out[1],
                             .dout = r.dout[0],
                             .delta = {r.scratch, DType::f32, r.step.tokens, r.model.config.num_attention_heads},
                             .dq = r.din[0],
                             .dk = r.din[1],
                             .dv = r.din[2],
                             .math = r.math()});
}

// ---- gated_act
void gated_act_forward(OpRun& r) {
  gated_act(r.ctx, {.gate = r.in[0], .up = r.in[1], .act = r.op.act, .y = r.out[0]});
}
void gated_act_back(OpRun& r) {
  gated_act_backward(r.ctx, {.gate = r.in[0],
                             .up = r.in[1],
                             .dy = r.dout[0],
                             .act = r.op.act,
                             .dgate = r.din[0],
                             .dup = r.din[1],
                             .dgate_mode = r.mode[0],
                             .dup_mode = r.mode[1]});
}

// ---- add: y = a + b
void add_forward(OpRun& r) {
  if (r.out[0].data != r.in[0].data) copy(r.ctx, {.x = r.in[0], .y = r.out[0]});
  copy(r.ctx, {.x = r.in[1], .y = r.out[0], .mode = GradMode::add});
}
void add_backward(OpRun& r) {
  for (const size_t i : {size_t{0}, size_t{1}})
    if (r.din[i]) copy(r.ctx, {.x = r.dout[0], .y = r.din[i], .mode = r.mode[i]});
}

// ---- dropout (only in front of lora_down)
void dropout_run(OpRun& r, const TensorView& x, const TensorView& y, GradMode mode) {
  if (!r.step.training) return copy(r.ctx, {.x = x, .y = y, .mode = mode});
  dropout(r.ctx, {.x = x,
                  .p = static_cast<float>(r.adapters->config().lora_dropout),
                  .row_key = r.step.row_key,
                  .position = r.step.positions,
                  .layer = r.graph.layer,
                  .site = r.op.site,
                  .y = y,
                  .mode = mode});
}
void dropout_forward(OpRun& r) {
  dropout_run(r, r.in[0], r.out[0], GradMode::write);
}
void dropout_backward(OpRun& r) {
  if (r.din[0]) dropout_run(r, r.dout[0], r.din[0], r.mode[0]);
}

// ---- cross_entropy
void cross_entropy_run(OpRun& r, const TensorView& dhidden) {
  chunked_cross_entropy(r.ctx, {.hidden = r.in[0],
                                .labels = r.step.labels,
                                .weights = r.step.weights,
                                .head = r.weights.matrix(weight_name(r)),
                                .math = r.math(),
                                .loss = r.out[0].row<float>(0),
                                .dhidden = dhidden,
                                .scratch = r.scratch,
                                .scratch_bytes = r.scratch_bytes});
}
void cross_entropy_forward(OpRun& r) {
  cross_entropy_run(r, {});
}
void cross_entropy_back(OpRun& r) {
  cross_entropy_run(r, r.din[0]);
}

constexpr uint32_t bit(int i) {
  return 1u << i;
}

}  // namespace

const OpKindInfo& info(OpKind kind) {
  static constexpr OpKindInfo table[] = {
      // in the order of OpKind; what is not named is the default
      {.name = "embedding", .nearly_free = true, .forward = embedding_forward},
      {.name = "rms_norm",
       .backward_reads_in = bit(0),
       .backward_reads_out = bit(1),
       .grad_in = bit(0),
       .grad_out = bit(0),
       .nearly_free = true,
       .forward = rms_norm_forward,
       .backward = rms_norm_back},
      {.name = "linear",
       .backward_reads_in = bit(1),
       .grad_in = bit(0) | bit(1) | bit(2),
       .grad_out = bit(0),
       .forward_in_place = 2,
       .dgrad_over_dout = 2,
       .dout_passes_through = true,
       .forward = linear_forward,
       .backward = linear_backward},
      {.name = "lora_down",
       .backward_reads_in = bit(0),
       .grad_in = bit(0),
       .grad_out = bit(0),
       .forward = lora_down_forward,
       .backward = lora_down_backward},
      {.name = "rope",
       .grad_in = bit(0),
       .grad_out = bit(0),
       .nearly_free = true,
       .forward_in_place = 0,
       .dgrad_over_dout = 0,
       .forward = rope_forward,
       .backward = rope_backward},
      {.name = "attention",
       .backward_reads_in = bit(0) | bit(1) | bit(2),
       .backward_reads_out = bit(0) | bit(1),
       .grad_in = bit(0) | bit(1) | bit(2),
       .grad_out = bit(0),
       .forward = attention_forward,
       .backward = attention_back},
      {.name = "gated_act",
       .backward_reads_in = bit(0) | bit(1),
       .grad_in = bit(0) | bit(1),
       .grad_out = bit(0),
       .nearly_free = true,
       .forward_in_place = 0,
       .dgrad_over_input = bit(0) | bit(1),
       .forward = gated_act_forward,
       .backward = gated_act_back},
      {.name = "add",
       .grad_in = bit(0) | bit(1),
       .grad_out = bit(0),
       .nearly_free = true,
       .forward_in_place = 0,
       .dgrad_over_dout = 0,
       .dout_passes_through = true,
       .forward = add_forward,
       .backward = add_backward},
      {.name = "dropout",
       .grad_in = bit(0),
       .grad_out = bit(0),
       .nearly_free = true,
       .forward = dropout_forward,
       .backward = dropout_backward},
      {.name = "cross_entropy",
       .backward_reads_in = bit(0),
       .grad_in = bit(0),
       .loss = true,
       .forward = cross_entropy_forward,
       .backward = cross_entropy_back},
  };
  return table[static_cast<size_t>(kind)];
}

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
      return 2 * t * static_cast<double>(width(g, op.out[0])) *
             static_cast<double>(width(g, op.in[0]) + width(g, op.in[1]));
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
      const double out = static_cast<double>(width(g, op.out[0])), r = static_cast<double>(width(g, op.in[1]));
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

bool has_trained_parameters(const LayerGraph&, const Op& op) {
  return op.kind == OpKind::lora_down || op.trainable || (op.kind == OpKind::linear && op.in[1] >= 0);
}

}  // namespace bantam
