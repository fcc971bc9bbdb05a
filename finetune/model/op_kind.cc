// SPDX-License-Identifier: Apache-2.0
#include "op_kind.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../kernels/attention.h"
#include "../../kernels/copy.h"
#include "../../kernels/cross_entropy.h"
#include "../../kernels/device_scratch.h"
#include "../../kernels/dropout.h"
#include "../../kernels/embedding.h"
#include "../../kernels/gated_act.h"
#include "../../kernels/product.h"
#include "../../kernels/rms_norm.h"
#include "../../kernels/rope.h"

namespace bantam {

namespace {

// Runs an op; when planning, it only tells what it takes.
template <class Args>
void call(const OpRun& r, void (*op)(Context&, const Args&), const Args& args) {
  if (!r.planning) return op(*r.ctx, args);
  DeviceNeeds& needs = r.planning->needs;
  if constexpr (requires { device_scratch(args, r.planning->attention); })
    needs.workspace = std::max(needs.workspace, device_scratch(args, r.planning->attention));
  else
    needs.workspace = std::max(needs.workspace, device_scratch(args));
  needs.upload = std::max(needs.upload, device_upload(args));
}

int64_t width(const LayerGraph& g, int value) {
  return value < 0 ? 0 : g.values[static_cast<size_t>(value)].width;
}

// What is not there when planning has an address that is none of a value's and that nobody reads.
float* nowhere() {
  return reinterpret_cast<float*>(uintptr_t{64});
}
TensorView shape_only(int64_t rows, int64_t cols) {
  return {nowhere(), DType::f32, rows, cols};
}

std::string weight_name(const OpRun& r) {
  return r.op.module + ".weight";
}

// The op's frozen matrix [rows, cols].
WeightView matrix(const OpRun& r, int64_t rows, int64_t cols) {
  if (!r.planning) return r.weights.matrix(weight_name(r));
  const std::string name = r.graph.prefix + weight_name(r);
  const auto found = r.planning->formats.find(name);
  if (found == r.planning->formats.end()) throw Error(ErrorCode::internal, str("planning: no matrix '", name, "'"));
  WeightView w{ConstTensorView(shape_only(rows, cols))};
  w.format = found->second;
  return w;
}
// The same for a product, which decodes it.
WeightView product_matrix(const OpRun& r, int64_t rows, int64_t cols) {
  const WeightView w = matrix(r, rows, cols);
  if (r.planning && w.format == WeightFormat::nf4)
    r.planning->needs.decoded[r.graph.prefix + weight_name(r)] = {r.graph.layer, decoded_bytes(w, r.math())};
  return w;
}
WeightView linear_matrix(const OpRun& r) {
  return product_matrix(r, width(r.graph, r.op.out[0]), width(r.graph, r.op.in[0]));
}
const float* vector(const OpRun& r, const std::string& name) {
  return r.planning ? nowhere() : r.weights.vector(name).data();
}

const AdapterSet::Adapter& adapter(const OpRun& r) {
  const AdapterSet::Adapter* a = r.adapters ? r.adapters->find(r.graph.prefix + r.op.module) : nullptr;
  if (!a)
    throw Error(ErrorCode::internal,
                str("graph has an adapter at ", r.graph.prefix, r.op.module, ", the adapter set has not"));
  return *a;
}

// LoRA's matrices, [r, in] and [out, r], and their gradients.
int64_t lora_in(const OpRun& r) {
  return width(r.graph, r.op.in[0]);
}
int64_t lora_out(const OpRun& r) {
  return width(r.graph, r.op.out[0]);
}
// For a group those of its modules, stacked: the first module's matrix with more rows.
int64_t lora_a_rows(const OpRun& r) {
  return r.op.lora_rank * std::max<int64_t>(1, static_cast<int64_t>(r.op.group.size()));
}
template <class View>
View stacked(View first, int64_t rows) {
  first.rows = rows;
  return first;
}
ConstTensorView lora_a(const OpRun& r) {
  return r.planning ? shape_only(lora_a_rows(r), lora_in(r)) : stacked(r.adapters->value(adapter(r).a), lora_a_rows(r));
}
TensorView lora_da(const OpRun& r) {
  return r.planning ? shape_only(lora_a_rows(r), lora_in(r)) : stacked(r.grads->grad(adapter(r).a), lora_a_rows(r));
}
ConstTensorView lora_b(const OpRun& r) {
  return r.planning ? shape_only(lora_out(r), r.op.lora_rank) : r.adapters->value(adapter(r).b);
}
TensorView lora_db(const OpRun& r) {
  return r.planning ? shape_only(lora_out(r), r.op.lora_rank) : r.grads->grad(adapter(r).b);
}
// A linear's own columns of z, or of its gradient.
TensorView lora_z(const OpRun& r, const TensorView& z) {
  return z.columns(r.op.z_column, r.op.lora_rank);
}
const LoraConfig& lora_config(const OpRun& r) {
  return r.planning ? r.model.lora : r.adapters->config();
}

// ---- embedding
void embedding_forward(OpRun& r) {
  const ModelConfig& c = r.model.config;
  call(r, embedding,
       {.ids = r.step.ids, .table = matrix(r, c.vocab_size, c.hidden_size), .math = r.math(), .y = r.out[0]});
}

// ---- rms_norm
const float* norm_weight(const OpRun& r) {
  if (r.op.trainable && !r.planning) {
    const auto v = r.adapters->value(r.adapters->find_parameter(r.graph.prefix + weight_name(r)));
    return v.row<float>(0);
  }
  return vector(r, weight_name(r));
}
void rms_norm_forward(OpRun& r) {
  call(r, rms_norm,
       {.x = r.in[0],
        .weight = norm_weight(r),
        .eps = static_cast<float>(r.model.config.rms_norm_eps),
        .y = r.out[0],
        .rstd = r.out[1].row<float>(0)});
}
void rms_norm_back(OpRun& r) {
  float* dweight = nullptr;
  if (r.op.trainable)
    dweight =
        r.planning ? nowhere() : r.grads->grad(r.grads->find_parameter(r.graph.prefix + weight_name(r))).row<float>(0);
  call(r, rms_norm_backward,
       {.x = r.in[0],
        .weight = norm_weight(r),
        .rstd = r.out[1].row<float>(0),
        .dy = r.dout[0],
        .dx = r.din[0],
        .mode = r.mode[0],
        .dweight = dweight});
}

// ---- lora_down: z = scale * x A^T. The gradient of z carries the scale already (see linear_backward).
void lora_down_forward(OpRun& r) {
  call(r, product,
       {.terms = {{.a = r.in[0], .b = lora_a(r)}}, .alpha = lora_config(r).scale(), .c = r.out[0], .math = r.math()});
}
void lora_down_backward(OpRun& r) {
  call(r, product,
       {.terms = {{.a = r.dout[0], .b = ConstTensorView(r.in[0]), .layout = BLayout::nn, .a_transposed = true}},
        .c = lora_da(r),
        .mode = GradMode::add,
        .math = r.math()});
  if (r.din[0])
    call(r, product,
         {.terms = {{.a = r.dout[0], .b = lora_a(r), .layout = BLayout::nn}},
          .c = r.din[0],
          .mode = r.mode[0],
          .math = r.math()});
}

// ---- linear: y = x W^T + z B^T + bias + residual, rounded once
void linear_forward(OpRun& r) {
  ProductArgs p{.terms = {{.a = r.in[0], .b = linear_matrix(r)}}, .residual = r.in[2], .c = r.out[0], .math = r.math()};
  if (r.op.has_bias) p.bias = vector(r, r.op.module + ".bias");
  if (r.in[1]) p.terms[p.num_terms++] = {.a = lora_z(r, r.in[1]), .b = lora_b(r)};
  call(r, product, p);
}
void linear_backward(OpRun& r) {
  const ConstTensorView dy = r.dout[0];
  const bool a = r.op.in[1] >= 0;
  ProductArgs list[3];  // of dy, which a device converts once
  size_t n = 0;
  if (a) {
    list[n++] = {
        .terms = {{.a = dy, .b = ConstTensorView(lora_z(r, r.in[1])), .layout = BLayout::nn, .a_transposed = true}},
        .c = lora_db(r),
        .mode = GradMode::add,
        .math = r.math()};
    list[n++] = {.terms = {{.a = dy, .b = lora_b(r), .layout = BLayout::nn}},
                 .alpha = lora_config(r).scale(),
                 .c = lora_z(r, r.din[1]),
                 .math = r.math()};
  }
  if (r.din[0]) {
    ProductArgs& p = list[n++];
    p = {.terms = {{.a = dy, .b = linear_matrix(r), .layout = BLayout::nn}},
         .c = r.din[0],
         .mode = r.mode[0],
         .math = r.math()};
    if (a && r.op.lora_dx_fused)
      p.terms[p.num_terms++] = {.a = lora_z(r, r.din[1]), .b = lora_a(r), .layout = BLayout::nn};
  }
  if (n > 0) call(r, products, {.list = {list, n}});
  if (r.din[2]) call(r, copy, {.x = dy, .y = r.din[2], .mode = r.mode[2]});
}

// ---- rope
void rope_run(OpRun& r, const TensorView& x, const TensorView& y, bool inverse, GradMode mode) {
  call(r, rope,
       {.x = x,
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
    call(r, copy, {.x = r.in[1], .y = c.k.row_range(c.length, r.step.tokens)});
    call(r, copy, {.x = r.in[2], .y = c.v.row_range(c.length, r.step.tokens)});
    c.length += r.step.tokens;
    cu_k[1] = static_cast<int32_t>(c.length);
    a.shape.cu_k = cu_k;
    a.k = c.k.row_range(0, c.length);
    a.v = c.v.row_range(0, c.length);
  }
  call(r, attention, a);
}
void attention_back(OpRun& r) {
  call(r, attention_backward,
       {.shape = attention_shape(r),
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
  call(r, gated_act, {.gate = r.in[0], .up = r.in[1], .act = r.op.act, .y = r.out[0]});
}
void gated_act_back(OpRun& r) {
  call(r, gated_act_backward,
       {.gate = r.in[0],
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
  if (r.out[0].data != r.in[0].data) call(r, copy, {.x = r.in[0], .y = r.out[0]});
  call(r, copy, {.x = r.in[1], .y = r.out[0], .mode = GradMode::add});
}
void add_backward(OpRun& r) {
  for (const size_t i : {size_t{0}, size_t{1}})
    if (r.din[i]) call(r, copy, {.x = r.dout[0], .y = r.din[i], .mode = r.mode[i]});
}

// ---- dropout (only in front of lora_down)
void dropout_run(OpRun& r, const TensorView& x, const TensorView& y, GradMode mode) {
  if (!r.step.training) return call(r, copy, {.x = x, .y = y, .mode = mode});
  call(r, dropout,
       {.x = x,
        .p = static_cast<float>(lora_config(r).lora_dropout),
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
  call(r, chunked_cross_entropy,
       {.hidden = r.in[0],
        .labels = r.step.labels,
        .weights = r.step.weights,
        .head = product_matrix(r, r.model.config.vocab_size, r.in[0].cols),
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

}  // namespace bantam
