// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <algorithm>

#include "../../kernels/error.h"
#include "../model/op_kind.h"
#include "placement.h"

namespace bantam {

namespace {

bool has_bit(uint32_t mask, size_t i) {
  return (mask >> i & 1u) != 0;
}

class Compiler {
 public:
  Compiler(const ModelGraph& model, const ProgramOptions& options, bool training)
      : model_(model),
        options_(options),
        analysis_(analyse(model)),
        ran_(model.stages.size(), false),
        training_(training) {
    for (const LayerGraph& g : model.stages) {
      value_.emplace_back(g.values.size(), -1);
      grad_.emplace_back(g.values.size(), -1);
      keep_.emplace_back(g.values.size(), false);
    }
    program_.max_tokens = options.max_tokens;
    program_.sequence = options.sequence;
  }

  Program run(const Schedule& schedule) {
    program_.schedule = schedule.name;
    for (const Action& a : schedule.actions) {
      const int first = now();
      a.kind == Action::Kind::forward ? forward(a) : backward(a.stage);
      program_.actions.push_back({a.kind, a.stage, first, now()});
    }
    for (const int b : {program_.loss, program_.result})
      if (b >= 0) program_.buffers[idx(b)].last = std::max(0, now() - 1);  // the caller reads it
    place_all();
    return std::move(program_);
  }

 private:
  static size_t idx(int i) { return static_cast<size_t>(i); }
  const LayerGraph& stage(int s) const { return model_.stages[idx(s)]; }
  int now() const { return static_cast<int>(program_.instrs.size()); }

  int new_buffer(const std::string& name, int64_t row_bytes, size_t fixed, bool saved) {
    Buffer b;
    b.name = name;
    b.row_bytes = row_bytes;
    b.bytes = (fixed + static_cast<size_t>(row_bytes * options_.max_tokens) + 63) / 64 * 64;
    b.first = b.last = now();
    b.saved = saved;
    program_.buffers.push_back(b);
    return static_cast<int>(program_.buffers.size()) - 1;
  }
  ValueRef use(int buffer, int64_t width, DType dtype) {
    if (buffer >= 0) program_.buffers[idx(buffer)].last = now();
    return {buffer, width, dtype};
  }
  ValueRef use_value(int s, int v) {
    if (v < 0) return {};
    const ValueInfo& info = stage(s).values[idx(v)];
    return use(value_[idx(s)][idx(v)], info.width, info.dtype);
  }
  [[noreturn]] void illegal(int s, int v, const char* what) const {
    throw Error(ErrorCode::internal,
                str("schedule '", program_.schedule, "': ", what, " ", stage(s).prefix, stage(s).values[idx(v)].name));
  }

  // Fan-in is summed in f32, and what crosses a stage or leaves the loss is f32; other gradients have their value's
  // dtype.
  DType grad_dtype(int s, int v) const {
    const LayerGraph& g = stage(s);
    if (v == g.input || v == g.output || analysis_[idx(s)].contributions[idx(v)] > 1) return DType::f32;
    for (const Op& op : g.ops)
      if (info(op.kind).loss && op.in[0] == v) return DType::f32;
    return g.values[idx(v)].dtype;
  }

  // May `op` (running now as a forward) write its output over its input v?
  bool may_overwrite(int s, int o, int v, bool recompute) const {
    const LayerGraph& g = stage(s);
    const Op& op = g.ops[idx(o)];
    const ValueInfo &from = g.values[idx(v)], &to = g.values[idx(op.out[0])];
    if (from.dtype != to.dtype || from.width != to.width || v == g.output || keep_[idx(s)][idx(v)]) return false;
    if (std::count(op.in.begin(), op.in.end(), v) != 1) return false;
    if (v == g.input && s > 0 && value_[idx(s) - 1][idx(stage(s - 1).output)] >= 0)
      return false;  // kept below, under another name
    if (recompute && (v == g.input || analysis_[idx(s)].read_by_backward[idx(v)])) return false;
    for (size_t k = 0; k < g.ops.size(); ++k) {
      const bool reads = std::count(g.ops[k].in.begin(), g.ops[k].in.end(), v) > 0;
      if (reads && static_cast<int>(k) != o && (recompute || static_cast<int>(k) > o)) return false;
    }
    return true;
  }

  void emit_forward(int s, int o, bool recompute) {
    const LayerGraph& g = stage(s);
    const Op& op = g.ops[idx(o)];
    Instr n;
    n.recompute = recompute;
    n.stage = s;
    n.op = o;
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i] >= 0 && value_[idx(s)][idx(op.in[i])] < 0) illegal(s, op.in[i], "forward needs the missing value");
      n.in[i] = use_value(s, op.in[i]);
    }
    const int over = info(op.kind).forward_in_place;
    const int v = over >= 0 ? op.in[idx(over)] : -1;
    for (size_t j = 0; j < op.out.size(); ++j) {
      int& have = value_[idx(s)][idx(op.out[j])];
      const ValueInfo& out = g.values[idx(op.out[j])];
      if (have < 0) {
        if (j == 0 && v >= 0 && may_overwrite(s, o, v, recompute)) {
          have = value_[idx(s)][idx(v)];
          value_[idx(s)][idx(v)] = -1;
          if (keep_[idx(s)][idx(op.out[0])]) program_.buffers[idx(have)].saved = true;
        } else {
          have = new_buffer(g.prefix + out.name, out.width * static_cast<int64_t>(size_of(out.dtype)), 0,
                            keep_[idx(s)][idx(op.out[j])]);
        }
      }
      n.out[j] = use_value(s, op.out[j]);
      if (info(op.kind).loss) program_.loss = have;
    }
    add_scratch(n, forward_scratch(model_.config, g, op, scratch_size()));
    (recompute ? program_.recompute_flops : program_.forward_flops) +=
        forward_flops(model_.config, g, op, options_.max_tokens, options_.sequence);
    program_.instrs.push_back(n);
  }

  ScratchSize scratch_size() const { return {options_.max_tokens, options_.loss_chunk_bytes}; }
  void add_scratch(Instr& n, size_t bytes) {
    if (bytes > 0)
      n.scratch = new_buffer(str("scratch of ", info(stage(n.stage).ops[idx(n.op)].kind).name), 0, bytes, false);
  }

  void forward(const Action& a) {
    const int s = a.stage;
    const LayerGraph& g = stage(s);
    const bool again = ran_[idx(s)];
    ran_[idx(s)] = true;
    keep_[idx(s)] = a.keep;
    if (g.input >= 0 && a.keep[idx(g.input)]) {
      const int b = value_[idx(s)][idx(g.input)];
      if (b >= 0) program_.buffers[idx(b)].saved = true;
    }
    for (size_t o = 0; o < g.ops.size(); ++o) {
      // In training the loss and its gradient are one op of the backward.
      if (info(g.ops[o].kind).loss && analysis_[idx(s)].has_backward && training_) continue;
      emit_forward(s, static_cast<int>(o), again);
    }
    if (g.output >= 0 && s + 1 < static_cast<int>(model_.stages.size()))
      value_[idx(s) + 1][idx(stage(s + 1).input)] = value_[idx(s)][idx(g.output)];
    else if (g.output >= 0)
      program_.result = value_[idx(s)][idx(g.output)];
    for (size_t v = 0; v < g.values.size(); ++v)
      if (!a.keep[v]) {
        const bool tail_needs =
            training_ && g.output < 0 && static_cast<int>(v) != g.input && analysis_[idx(s)].read_by_backward[v];
        if (!tail_needs) value_[idx(s)][v] = -1;
      }
  }

  void rebuild(int s, int v) {
    if (v < 0 || value_[idx(s)][idx(v)] >= 0) return;
    const int p = analysis_[idx(s)].producer[idx(v)];
    if (p < 0) illegal(s, v, "backward needs the stage's input, which was dropped:");
    for (const int i : stage(s).ops[idx(p)].in) rebuild(s, i);
    emit_forward(s, p, true);
  }

  // Value v is not needed by any backward op before o in the list, nor to rebuild anything for one.
  bool dead_after(int s, int o, int v) const {
    const LayerGraph& g = stage(s);
    if (v == g.input || v == g.output) return false;
    for (int k = 0; k < o; ++k)
      if (std::count(g.ops[idx(k)].in.begin(), g.ops[idx(k)].in.end(), v) > 0) return false;
    const int p = analysis_[idx(s)].producer[idx(v)];
    const Op& op = g.ops[idx(p)];
    for (size_t j = 0; j < op.out.size(); ++j)
      if (op.out[j] == v && has_bit(info(op.kind).backward_reads_out, j)) return false;
    return true;
  }

  void emit_backward(int s, int o) {
    const LayerGraph& g = stage(s);
    const Op& op = g.ops[idx(o)];
    const OpKindInfo& k = info(op.kind);
    const StageAnalysis& a = analysis_[idx(s)];
    // Inputs first, then outputs: an output's rebuild finds its op's inputs there.
    for (size_t i = 0; i < op.in.size(); ++i)
      if (has_bit(k.backward_reads_in, i)) rebuild(s, op.in[i]);
    for (size_t j = 0; j < op.out.size(); ++j)
      if (has_bit(k.backward_reads_out, j)) rebuild(s, op.out[j]);

    Instr n;
    n.backward = true;
    n.stage = s;
    n.op = o;
    for (size_t i = 0; i < op.in.size(); ++i)
      if (op.in[i] >= 0 && has_bit(k.backward_reads_in, i)) n.in[i] = use_value(s, op.in[i]);
    for (size_t j = 0; j < op.out.size(); ++j) {
      const int v = op.out[j];
      if (k.loss) {
        value_[idx(s)][idx(v)] = program_.loss = new_buffer(g.prefix + g.values[idx(v)].name, sizeof(float), 0, false);
        n.out[j] = use_value(s, v);
      } else if (has_bit(k.backward_reads_out, j)) {
        n.out[j] = use_value(s, v);
      }
      if (has_bit(k.grad_out, j)) n.dout[j] = use(grad_[idx(s)][idx(v)], g.values[idx(v)].width, grad_dtype(s, v));
    }
    for (size_t i = 0; i < op.in.size(); ++i) {
      const int v = op.in[i];
      if (v < 0 || !has_bit(k.grad_in, i) || !a.requires_grad[idx(v)]) continue;
      if (op.kind == OpKind::lora_down && op.lora_dx_fused) continue;
      int& have = grad_[idx(s)][idx(v)];
      const DType dtype = grad_dtype(s, v);
      const int64_t width = g.values[idx(v)].width;
      if (have >= 0) {
        n.din[i] = use(have, width, dtype);
        n.mode[i] = writes_part(op, i) ? GradMode::write : GradMode::add;
        continue;
      }
      const bool over_dout = static_cast<int>(i) == k.dgrad_over_dout && dtype == n.dout[0].dtype &&
                             width == n.dout[0].width && std::count(op.in.begin(), op.in.end(), v) == 1;
      const bool over_input = has_bit(k.dgrad_over_input, i) && value_[idx(s)][idx(v)] >= 0 &&
                              dtype == g.values[idx(v)].dtype && dead_after(s, o, v) &&
                              std::count(op.in.begin(), op.in.end(), v) == 1;
      if (over_dout) {
        have = n.dout[0].buffer;
        if (!k.dout_passes_through) n.din[i] = use(have, width, dtype);
      } else if (over_input) {
        have = value_[idx(s)][idx(v)];
        value_[idx(s)][idx(v)] = -1;
        n.din[i] = use(have, width, dtype);
      } else {
        have =
            new_buffer("d " + g.prefix + g.values[idx(v)].name, width * static_cast<int64_t>(size_of(dtype)), 0, false);
        n.din[i] = use(have, width, dtype);
      }
    }
    add_scratch(n, backward_scratch(model_.config, g, op, scratch_size()));
    program_.backward_flops +=
        backward_flops(model_.config, g, op, options_.max_tokens,
                       op.in.empty() || (op.in[0] >= 0 && a.requires_grad[idx(op.in[0])]), options_.sequence);
    program_.instrs.push_back(n);
  }

  void backward(int s) {
    const LayerGraph& g = stage(s);
    const StageAnalysis& a = analysis_[idx(s)];
    if (g.output >= 0) grad_[idx(s)][idx(g.output)] = grad_[idx(s) + 1][idx(stage(s + 1).input)];
    for (int o = static_cast<int>(g.ops.size()) - 1; o >= 0; --o)
      if (a.runs_backward[idx(o)]) emit_backward(s, o);
    value_[idx(s)].assign(g.values.size(), -1);
  }

  void place_all() {
    std::vector<Interval> intervals;
    for (const Buffer& b : program_.buffers)
      intervals.push_back({.bytes = b.bytes, .first = b.first, .last = b.last, .saved = b.saved});
    program_.live_peak = live_peak(intervals);
    program_.peak = options_.place ? place(intervals) : program_.live_peak;
    for (size_t i = 0; i < intervals.size(); ++i) program_.buffers[i].offset = intervals[i].offset;
    // What the peak is made of.
    const std::vector<size_t> live = live_bytes(program_);
    const auto t = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
    for (const Buffer& b : program_.buffers) {
      if (t < b.first || b.last < t) continue;
      if (b.saved) program_.saved_at_peak += b.bytes;
      if (b.row_bytes == 0) program_.scratch_at_peak += b.bytes;
    }
  }

  const ModelGraph& model_;
  ProgramOptions options_;
  std::vector<StageAnalysis> analysis_;
  Program program_;
  std::vector<std::vector<int>> value_, grad_;  // [stage][value] -> buffer; -1: not there
  std::vector<SavedSet> keep_;
  std::vector<bool> ran_;  // forwards so far, by stage
  const bool training_;    // the loss runs with its gradient
};

}  // namespace

std::vector<size_t> live_bytes(const Program& p) {
  std::vector<size_t> live(p.instrs.size() + 1, 0);
  for (const Buffer& b : p.buffers) {  // unsigned wrap-around cancels in the sum
    live[static_cast<size_t>(b.first)] += b.bytes;
    live[static_cast<size_t>(b.last) + 1] -= b.bytes;
  }
  for (size_t t = 1; t < live.size(); ++t) live[t] += live[t - 1];
  live.pop_back();
  return live;
}

Program compile(const ModelGraph& model, const Schedule& schedule, const ProgramOptions& options) {
  if (options.max_tokens < 1) throw Error(ErrorCode::internal, str("program for ", options.max_tokens, " tokens"));
  const bool training = std::any_of(schedule.actions.begin(), schedule.actions.end(),
                                    [](const Action& a) { return a.kind == Action::Kind::backward; });
  return Compiler(model, options, training).run(schedule);
}

}  // namespace bantam
