// SPDX-License-Identifier: Apache-2.0
#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "../../kernels/error.h"
#include "../model/op_kind.h"

namespace bantam {

namespace {
bool has_bit(uint32_t mask, size_t i) {
  return (mask >> i & 1u) != 0;
}

// Forward direction: which values depend on something trained.
void mark_requires_grad(const LayerGraph& g, StageAnalysis& a) {
  a.requires_grad.assign(g.values.size(), false);
  a.producer.assign(g.values.size(), -1);
  if (g.input >= 0) a.requires_grad[static_cast<size_t>(g.input)] = a.input_requires_grad;
  for (size_t o = 0; o < g.ops.size(); ++o) {
    const Op& op = g.ops[o];
    bool any = has_trained_parameters(g, op);
    for (size_t i = 0; i < op.in.size(); ++i)
      if (op.in[i] >= 0 && has_bit(info(op.kind).grad_in, i))
        any = any || a.requires_grad[static_cast<size_t>(op.in[i])];
    for (size_t j = 0; j < op.out.size(); ++j) {
      a.producer[static_cast<size_t>(op.out[j])] = static_cast<int>(o);
      a.requires_grad[static_cast<size_t>(op.out[j])] = any && has_bit(info(op.kind).grad_out, j);
    }
  }
}

// Backward direction: which ops run, what they read, how many add to each gradient.
void mark_backward(const LayerGraph& g, bool output_has_grad, StageAnalysis& a) {
  a.contributions.assign(g.values.size(), 0);
  a.runs_backward.assign(g.ops.size(), false);
  a.read_by_backward.assign(g.values.size(), false);
  std::vector<bool> has_grad(g.values.size(), false);
  if (g.output >= 0) has_grad[static_cast<size_t>(g.output)] = output_has_grad;
  for (size_t o = g.ops.size(); o-- > 0;) {
    const Op& op = g.ops[o];
    const OpKindInfo& k = info(op.kind);
    bool gets = k.loss, wanted = has_trained_parameters(g, op);
    for (size_t j = 0; j < op.out.size(); ++j)
      gets = gets || (has_bit(k.grad_out, j) && has_grad[static_cast<size_t>(op.out[j])]);
    for (size_t i = 0; i < op.in.size(); ++i)
      if (op.in[i] >= 0 && has_bit(k.grad_in, i)) wanted = wanted || a.requires_grad[static_cast<size_t>(op.in[i])];
    if (!gets || !wanted || !k.backward) continue;
    a.runs_backward[o] = a.has_backward = true;
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i] < 0) continue;
      const auto v = static_cast<size_t>(op.in[i]);
      if (has_bit(k.backward_reads_in, i)) a.read_by_backward[v] = true;
      const bool elsewhere = op.kind == OpKind::lora_down && op.lora_dx_fused;
      if (has_bit(k.grad_in, i) && a.requires_grad[v] && !elsewhere) {
        has_grad[v] = true;
        if (!writes_part(op, i) || op.z_column == 0) ++a.contributions[v];  // parts of one gradient are not summed
      }
    }
    for (size_t j = 0; j < op.out.size(); ++j)
      if (has_bit(k.backward_reads_out, j)) a.read_by_backward[static_cast<size_t>(op.out[j])] = true;
  }
}
}  // namespace

std::vector<StageAnalysis> analyse(const ModelGraph& model) {
  std::vector<StageAnalysis> all(model.stages.size());
  bool trained_below = false;
  for (size_t s = 0; s < all.size(); ++s) {
    const LayerGraph& g = model.stages[s];
    all[s].input_requires_grad = trained_below && g.input >= 0;
    mark_requires_grad(g, all[s]);
    if (g.output >= 0) trained_below = all[s].requires_grad[static_cast<size_t>(g.output)];
  }
  for (size_t s = all.size(); s-- > 0;) {
    const bool above = s + 1 < all.size() && all[s + 1].input_requires_grad &&
                       all[s + 1].contributions[static_cast<size_t>(model.stages[s + 1].input)] > 0;
    mark_backward(model.stages[s], above, all[s]);
  }
  return all;
}

namespace {
bool named(const std::vector<std::string>& save, const LayerGraph& g, const StageAnalysis& a, size_t v,
           std::set<std::string>& used) {
  bool hit = false;
  const int p = a.producer[v];
  for (const auto& name : save) {
    if (name == g.values[v].name || (p >= 0 && (name == g.ops[static_cast<size_t>(p)].module ||
                                                name == info(g.ops[static_cast<size_t>(p)].kind).name))) {
      used.insert(name);
      hit = true;
    }
  }
  return hit;
}
}  // namespace

std::vector<bool> cheap_to_rebuild(const LayerGraph& g, const StageAnalysis& a) {
  std::vector<bool> cheap(g.values.size(), false);
  const auto at_hand = [&](int v) {
    return v == g.input || cheap[static_cast<size_t>(v)] || a.read_by_backward[static_cast<size_t>(v)];
  };
  for (const Op& op : g.ops) {
    if (!info(op.kind).nearly_free) continue;
    const bool all = std::all_of(op.in.begin(), op.in.end(), [&](int v) { return v < 0 || at_hand(v); });
    for (const int v : op.out) cheap[static_cast<size_t>(v)] = all;
  }
  return cheap;
}

SavedSet keep_all(const LayerGraph& g, const StageAnalysis& a) {
  SavedSet keep = a.read_by_backward;
  if (g.input >= 0) keep[static_cast<size_t>(g.input)] = true;
  return keep;
}

SavedSet keep_input(const LayerGraph& g) {
  SavedSet keep(g.values.size(), false);
  if (g.input >= 0) keep[static_cast<size_t>(g.input)] = true;
  return keep;
}

namespace {
SavedSet selected(const CheckpointPolicy& policy, const LayerGraph& g, const StageAnalysis& a,
                  std::set<std::string>& used) {
  SavedSet keep = keep_input(g);
  const std::vector<bool> cheap = cheap_to_rebuild(g, a);
  for (size_t v = 0; v < keep.size(); ++v) {
    if (static_cast<int>(v) == g.input) continue;
    // Rows of one number (rstd, lse) cost nothing to keep.
    keep[v] = policy.save.empty() ? a.read_by_backward[v] && (!cheap[v] || g.values[v].width == 1)
                                  : named(policy.save, g, a, v, used);
  }
  return keep;
}

// Segments of n layers: only the first layer's input stays. When a segment's turn comes, its layers run forward again,
// all but the last keeping what backward reads; the last rebuilds from its input.
Schedule segments(const ModelGraph& model, const std::vector<StageAnalysis>& analysis, int n, const std::string& name) {
  Schedule s{.name = name, .actions = {}};
  const int stages = static_cast<int>(model.stages.size());
  const auto at = [&](int i) -> const LayerGraph& { return model.stages[static_cast<size_t>(i)]; };
  std::vector<std::pair<int, int>> parts;  // first, last
  for (int i = 0; i < stages; ++i) {
    if (!analysis[static_cast<size_t>(i)].has_backward) {
      s.actions.push_back({Action::Kind::forward, i, SavedSet(at(i).values.size(), false)});
      continue;
    }
    const bool tail = at(i).layer < 0;
    const bool starts = parts.empty() || tail || i - parts.back().first >= n || at(parts.back().first).layer < 0;
    if (starts)
      parts.emplace_back(i, i);
    else
      parts.back().second = i;
    s.actions.push_back({Action::Kind::forward, i, starts ? keep_input(at(i)) : SavedSet(at(i).values.size(), false)});
  }
  for (size_t p = parts.size(); p-- > 0;) {
    const auto [first, last] = parts[p];
    for (int i = first; i < last; ++i)
      s.actions.push_back({Action::Kind::forward, i, keep_all(at(i), analysis[static_cast<size_t>(i)])});
    for (int i = last; i >= first; --i) s.actions.push_back({Action::Kind::backward, i, {}});
  }
  return s;
}
}  // namespace

Schedule training_schedule(const ModelGraph& model, const CheckpointPolicy& policy) {
  const auto analysis = analyse(model);
  int layers = 0;
  for (const LayerGraph& g : model.stages) layers += g.layer >= 0;
  if (policy.mode == CheckpointMode::automatic)
    throw Error(ErrorCode::internal, "gradient_checkpointing: auto is solved by schedule_planner.h");
  if (policy.mode == CheckpointMode::every_n)
    return segments(model, analysis, std::max(1, policy.every_n), str("every_n: ", policy.every_n));
  if (policy.mode == CheckpointMode::sqrt)
    return segments(model, analysis, static_cast<int>(std::ceil(std::sqrt(static_cast<double>(layers)))), "sqrt");
  Schedule s;
  s.name = policy.mode == CheckpointMode::off ? "false" : policy.mode == CheckpointMode::full ? "true" : "selective";
  std::set<std::string> used;
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const LayerGraph& g = model.stages[i];
    const StageAnalysis& a = analysis[i];
    SavedSet keep = policy.mode == CheckpointMode::off    ? keep_all(g, a)
                    : policy.mode == CheckpointMode::full ? keep_input(g)
                                                          : selected(policy, g, a, used);
    if (!a.has_backward) keep.assign(g.values.size(), false);
    s.actions.push_back({Action::Kind::forward, static_cast<int>(i), keep});
  }
  for (const auto& name : policy.save)
    if (!used.contains(name)) {
      std::string names;
      for (const auto& v : model.stages[model.stages.size() / 2].values) names += (names.empty() ? "" : ", ") + v.name;
      throw Error(ErrorCode::usage,
                  str("selective_checkpointing.save: '", name, "' is no value of this model's layers"),
                  str("the values are ", names));
    }
  for (size_t i = model.stages.size(); i-- > 0;)
    if (analysis[i].has_backward) s.actions.push_back({Action::Kind::backward, static_cast<int>(i), {}});
  return s;
}

Schedule evaluation_schedule(const ModelGraph& model) {
  Schedule s{.name = "evaluation", .actions = {}};
  for (size_t i = 0; i < model.stages.size(); ++i)
    s.actions.push_back({Action::Kind::forward, static_cast<int>(i), SavedSet(model.stages[i].values.size(), false)});
  return s;
}

}  // namespace bantam
