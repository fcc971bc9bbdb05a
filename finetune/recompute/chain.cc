// SPDX-License-Identifier: Apache-2.0
#include "chain.h"

#include <algorithm>

#include "../../kernels/error.h"

namespace bantam {

double Chain::without_recompute() const {
  double s = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    double best = stages[i].backward;
    for (const StageOption& o : stages[i].options) best = std::min(best, o.backward);
    s += best + (i + 1 < stages.size() ? stages[i].forward : 0);
  }
  return s;
}

Simulation simulate(const Chain& chain, const std::vector<ChainOp>& ops) {
  using Kind = ChainOp::Kind;
  const int n = static_cast<int>(chain.stages.size());
  Simulation r;
  std::vector<bool> input(static_cast<size_t>(n), false), host(static_cast<size_t>(n), false);
  std::vector<int> set(static_cast<size_t>(n), -1);  // option kept of the stage
  int gradient = n;                                  // stage whose d_input is live; n: none yet
  size_t live = 0;
  const auto at = [&](int i) -> const StageCost& { return chain.stages[static_cast<size_t>(i)]; };
  const auto fail = [&](const ChainOp& op, const char* what) {
    r.error = str("stage ", op.stage, ": ", what);
    return r;
  };
  if (n == 0) return r;
  input[0] = true;
  live = r.peak = at(0).input;
  for (size_t t = 0; t < ops.size(); ++t) {
    const ChainOp& op = ops[t];
    const int i = op.stage;
    if (i < 0 || i >= n) return fail(op, "there is no such stage");
    const auto u = static_cast<size_t>(i);
    if (!input[u]) return fail(op, "its input is not there");
    if (host[u]) {  // it went there in the op before
      host[u] = false;
      live += at(i).input;
      r.seconds += at(i).load;
    }
    double at_least = 0;  // seconds of the copy beside it
    if (t + 1 < ops.size()) {
      const int next = ops[t + 1].stage;
      if (next >= 0 && next < n && host[static_cast<size_t>(next)]) {
        host[static_cast<size_t>(next)] = false;
        live += at(next).input;
        at_least = at(next).load;
      }
    }
    if (op.kind == Kind::backward) {
      if (gradient != i + 1) return fail(op, "backward without the gradient of its output");
      const bool kept = set[u] >= 0;
      const StageOption* o = kept ? &at(i).options[static_cast<size_t>(set[u])] : nullptr;
      r.peak = std::max(r.peak, live + (o ? o->backward_extra : at(i).backward_extra));
      r.seconds += std::max(at_least, o ? o->backward : at(i).backward);
      live -= at(i).input + (o ? o->kept : 0) + (i + 1 < n ? at(i + 1).d_input : 0);
      live += at(i).d_input;
      input[u] = false;
      set[u] = -1;
      gradient = i;
      continue;
    }
    if (i + 1 >= n) return fail(op, "the last stage has no forward");
    if (input[u + 1]) return fail(op, "its output is there already");
    if (set[u] >= 0) return fail(op, "it is kept already");
    if (gradient <= i + 1) return fail(op, "nobody needs its output any more");
    if (op.offload && (op.kind == Kind::forward_drop || !at(i).may_offload))
      return fail(op, "its input cannot go to host memory");
    size_t kept = 0, extra = at(i).forward_extra;
    if (op.kind == Kind::save) {
      if (op.option < 0 || op.option >= static_cast<int>(at(i).options.size())) return fail(op, "no such option");
      const StageOption& o = at(i).options[static_cast<size_t>(op.option)];
      kept = o.kept;
      extra = o.forward_extra;
      set[u] = op.option;
    }
    r.peak = std::max(r.peak, live + kept + at(i + 1).input + extra);
    live += kept + at(i + 1).input;
    input[u + 1] = true;
    if (op.kind == Kind::forward_drop) {
      live -= at(i).input;
      input[u] = false;
    }
    if (op.offload) {
      live -= at(i).input;
      host[u] = true;
      at_least = std::max(at_least, at(i).store);
      r.seconds += at(i).traffic;
    }
    r.seconds += std::max(at_least, at(i).forward);
  }
  if (gradient != 0) r.error = str("backward ended at stage ", gradient);
  return r;
}

}  // namespace bantam
