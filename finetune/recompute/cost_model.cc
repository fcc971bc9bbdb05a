// SPDX-License-Identifier: Apache-2.0
#include "cost_model.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "../model/op_kind.h"

namespace bantam {

CostModel CostModel::assume(double flops_per_second) {
  CostModel m;
  m.assumed_ = flops_per_second;
  return m;
}

std::string CostModel::key(const Op& op, bool backward) {
  return str(info(op.kind).name, " ", op.module, backward ? " backward" : " forward");
}

std::string CostModel::kind_key(const Op& op, bool backward) {
  return str(info(op.kind).name, backward ? " backward" : " forward");
}

double CostModel::work(const ModelConfig& config, const LayerGraph& graph, const Op& op, bool backward, bool dx,
                       int64_t tokens, int64_t sequence) {
  const double flops = backward ? backward_flops(config, graph, op, tokens, dx, sequence)
                                : forward_flops(config, graph, op, tokens, sequence);
  return flops > 0 ? flops : backward ? backward_bytes(graph, op, tokens) : forward_bytes(graph, op, tokens);
}

double CostModel::seconds(const ModelConfig& config, const LayerGraph& graph, const Op& op, bool backward, bool dx,
                          int64_t tokens, int64_t sequence) const {
  const double units = work(config, graph, op, backward, dx, tokens, sequence);
  for (const std::string& name : {key(op, backward), kind_key(op, backward)})
    if (const auto it = per_unit_.find(name); it != per_unit_.end()) return units * it->second;
  if (assumed_ <= 0) throw Error(ErrorCode::internal, str("no measured rate for '", key(op, backward), "'"));
  const bool products = forward_flops(config, graph, op, 1) > 0;
  return products ? units / assumed_ : units * kFlopsPerByte / assumed_;
}

double CostModel::seconds_per_kept_byte() const {
  const auto it = per_unit_.find(kKept);
  if (it != per_unit_.end()) return it->second;
  return assumed_ > 0 ? 2 * kFlopsPerByte / assumed_ : 0;
}

ProgramCost cost_of(const Program& program, const ModelGraph& model, const CostModel& costs) {
  ProgramCost c;
  for (const ActionSpan& a : program.actions) {
    double sum = 0;
    for (int t = a.first; t < a.last; ++t) {
      const Instr& n = program.instrs[static_cast<size_t>(t)];
      const LayerGraph& g = model.stages[static_cast<size_t>(n.stage)];
      const Op& op = g.ops[static_cast<size_t>(n.op)];
      const double s =
          costs.seconds(model.config, g, op, n.backward, n.din[0].buffer >= 0, program.max_tokens, program.sequence);
      (n.backward ? c.backward : n.recompute ? c.recompute : c.forward) += s;
      sum += s;
    }
    c.actions.push_back(sum);
  }
  // Actions follow each other, so the one in which a buffer ends is found by its first instruction.
  for (const Buffer& b : program.buffers) {
    if (!b.saved) continue;
    const auto after = std::upper_bound(program.actions.begin(), program.actions.end(), b.last,
                                        [](int t, const ActionSpan& a) { return t < a.first; });
    const auto action = static_cast<size_t>(after - program.actions.begin()) - 1;
    if (b.first >= program.actions[action].first) continue;  // made and read by one action
    const double s = static_cast<double>(b.bytes) * costs.seconds_per_kept_byte();
    c.backward += s;
    c.actions[action] += s;
  }
  return c;
}

}  // namespace bantam
