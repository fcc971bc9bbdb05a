// SPDX-License-Identifier: Apache-2.0
#include "layer_graph.h"

#include <utility>

#include "../../kernels/error.h"

namespace bantam {

GraphBuilder::GraphBuilder(const ModelConfig& config, DType dtype, const AdapterSet* adapters, int layer)
    : config_(config), dtype_(dtype), adapters_(adapters) {
  graph_.layer = layer;
  if (layer >= 0) graph_.prefix = str("model.layers.", layer, ".");
}

Value GraphBuilder::add_value(const std::string& name, int64_t width, DType dtype) {
  graph_.values.push_back({name, width, dtype});
  return static_cast<Value>(graph_.values.size()) - 1;
}

Value GraphBuilder::input(const std::string& name, int64_t width) {
  return graph_.input = add_value(name, width, dtype_);
}

Value GraphBuilder::embedding(const std::string& module, int64_t width) {
  const Value y = add_value(module, width, dtype_);
  graph_.ops.push_back({.kind = OpKind::embedding, .module = module, .in = {}, .out = {y}});
  return y;
}

Value GraphBuilder::rms_norm(Value x, const std::string& module) {
  const Value y = add_value(module, width(x), dtype_);
  const Value rstd = add_value(module + ".rstd", 1, DType::f32);
  const bool trainable = adapters_ && adapters_->find_parameter(graph_.prefix + module + ".weight") >= 0;
  graph_.ops.push_back(
      {.kind = OpKind::rms_norm, .module = module, .in = {x}, .out = {y, rstd}, .trainable = trainable});
  return y;
}

bool GraphBuilder::has_adapter(const std::string& module) const {
  return adapters_ && adapters_->find(graph_.prefix + module);
}

GraphBuilder::LoraInput GraphBuilder::lora_input(Value x, const std::string& module) {
  if (!has_adapter(module)) return {};
  Value xd = x;
  if (adapters_->config().lora_dropout > 0) {
    xd = add_value(module + ".dropout", width(x), dtype_);
    graph_.ops.push_back({.kind = OpKind::dropout, .module = module, .in = {x}, .out = {xd}, .site = sites_++});
  }
  const int64_t r = adapters_->config().r;
  const LoraInput lora{add_value(module + ".lora", r, dtype_), 0, xd == x};
  graph_.ops.push_back({.kind = OpKind::lora_down,
                        .module = module,
                        .in = {xd},
                        .out = {lora.z},
                        .lora_dx_fused = lora.dx_fused,
                        .lora_rank = r});
  return lora;
}

Value GraphBuilder::linear_op(Value residual, Value x, const LinearSpec& spec, const LoraInput& lora) {
  const Value y = add_value(spec.module, spec.out_width, dtype_);
  graph_.ops.push_back({.kind = OpKind::linear,
                        .module = spec.module,
                        .in = {x, lora.z, residual},
                        .out = {y},
                        .has_bias = spec.bias,
                        .lora_dx_fused = lora.dx_fused,
                        .lora_rank = lora.z < 0 ? 0 : adapters_->config().r,
                        .z_column = lora.column});
  return y;
}

Value GraphBuilder::linear(Value x, const std::string& module, int64_t out_width, bool bias) {
  return linear_op(-1, x, {module, out_width, bias}, lora_input(x, module));
}

void GraphBuilder::linear_ops(Value x, std::span<const LinearSpec> specs, std::span<Value> y) {
  std::vector<std::string> group, paths;
  for (const LinearSpec& s : specs)
    if (has_adapter(s.module)) {
      group.push_back(s.module);
      paths.push_back(graph_.prefix + s.module);
    }
  const bool stacked = group.size() > 1 && adapters_->config().lora_dropout == 0 && adapters_->stacked(paths);
  LoraInput shared;
  if (stacked) {
    const int64_t r = adapters_->config().r;
    shared.z = add_value(group[0] + ".lora", r * static_cast<int64_t>(group.size()), dtype_);
    graph_.ops.push_back(
        {.kind = OpKind::lora_down, .module = group[0], .in = {x}, .out = {shared.z}, .lora_rank = r, .group = group});
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!stacked) {
      y[i] = linear_op(-1, x, specs[i], lora_input(x, specs[i].module));
      continue;
    }
    const bool has = has_adapter(specs[i].module);
    y[i] = linear_op(-1, x, specs[i], has ? shared : LoraInput{});
    if (has) shared.column += adapters_->config().r;
  }
}

Value GraphBuilder::add_linear(Value residual, Value x, const std::string& module, int64_t out_width, bool bias) {
  return linear_op(residual, x, {module, out_width, bias}, lora_input(x, module));
}

Value GraphBuilder::rope(Value x) {
  const Value y = add_value(graph_.values[static_cast<size_t>(x)].name + ".rope", width(x), dtype_);
  graph_.ops.push_back({.kind = OpKind::rope, .module = "rope", .in = {x}, .out = {y}});
  return y;
}

Value GraphBuilder::attention(Value q, Value k, Value v) {
  const Value o = add_value("attention", width(q), dtype_);
  const Value lse = add_value("attention.lse", width(q) / config_.head_dim, DType::f32);
  graph_.ops.push_back({.kind = OpKind::attention, .module = "attention", .in = {q, k, v}, .out = {o, lse}});
  return o;
}

Value GraphBuilder::gated_act(Value gate, Value up, Act act) {
  const Value y = add_value("gated_act", width(gate), dtype_);
  graph_.ops.push_back({.kind = OpKind::gated_act, .module = "gated_act", .in = {gate, up}, .out = {y}, .act = act});
  return y;
}

Value GraphBuilder::add(Value a, Value b, const std::string& name) {
  const Value y = add_value(name, width(a), dtype_);
  graph_.ops.push_back({.kind = OpKind::add, .module = name, .in = {a, b}, .out = {y}});
  return y;
}

Value GraphBuilder::cross_entropy(Value x, const std::string& module) {
  const Value loss = add_value("loss", 1, DType::f32);
  graph_.ops.push_back({.kind = OpKind::cross_entropy, .module = module, .in = {x}, .out = {loss}});
  return loss;
}

LayerGraph GraphBuilder::output(Value x) {
  graph_.output = x;
  return std::move(graph_);
}

LayerGraph GraphBuilder::finish() {
  return std::move(graph_);
}

}  // namespace bantam
