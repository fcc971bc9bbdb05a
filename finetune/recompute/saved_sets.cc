// SPDX-License-Identifier: Apache-2.0
#include "saved_sets.h"

#include <algorithm>
#include <limits>
#include <map>

#include "../../kernels/error.h"
#include "../model/op_kind.h"

namespace bantam {

namespace {

size_t idx(int i) {
  return static_cast<size_t>(i);
}

size_t bytes_of(const ValueInfo& v, int64_t tokens) {
  return (static_cast<size_t>(v.width * tokens) * size_of(v.dtype) + 63) / 64 * 64;
}

// What a stage's rebuilding costs when `keep` is there: seconds of the fewest ops that give all that backward reads.
class Rebuild {
 public:
  Rebuild(const LayerGraph& g, const StageAnalysis& a, std::vector<double> op_seconds)
      : g_(g), a_(a), op_seconds_(std::move(op_seconds)), ran_(g.ops.size()) {}
  double seconds(const SavedSet& keep) {
    keep_ = &keep;
    std::fill(ran_.begin(), ran_.end(), false);
    sum_ = 0;
    for (size_t v = 0; v < keep.size(); ++v)
      if (a_.read_by_backward[v]) need(static_cast<int>(v));
    return sum_;
  }

 private:
  void need(int v) {
    if (v < 0 || (*keep_)[idx(v)]) return;
    const int p = a_.producer[idx(v)];
    if (p < 0 || ran_[idx(p)]) return;
    ran_[idx(p)] = true;
    for (const int i : g_.ops[idx(p)].in) need(i);
    sum_ += op_seconds_[idx(p)];
  }
  const LayerGraph& g_;
  const StageAnalysis& a_;
  std::vector<double> op_seconds_;
  std::vector<bool> ran_;
  const SavedSet* keep_ = nullptr;
  double sum_ = 0;
};

struct Point {
  SavedSet keep;
  size_t bytes = 0;
  double seconds = 0;
};

size_t kept_bytes(const LayerGraph& g, const SavedSet& keep, int64_t tokens) {
  size_t sum = 0;
  for (size_t v = 0; v < keep.size(); ++v)
    if (keep[v] && static_cast<int>(v) != g.input) sum += bytes_of(g.values[v], tokens);
  return sum;
}

// Fewer bytes and no slower: the front. Then at most kMostOptions of it: its ends and its lower hull, where different
// layers taking different points loses nothing, and others evenly between, which differ in working set.
std::vector<Point> front_of(std::vector<Point> points) {
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds;
  });
  std::vector<Point> front;
  for (Point& p : points)
    if (front.empty() || p.seconds < front.back().seconds * (1 - 1e-9)) front.push_back(std::move(p));
  if (front.size() <= kMostOptions) return front;
  const auto slope = [&](size_t a, size_t b) {
    return (front[a].seconds - front[b].seconds) / static_cast<double>(front[b].bytes - front[a].bytes);
  };
  std::vector<size_t> hull;
  for (size_t i = 0; i < front.size(); ++i) {
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), i)) hull.pop_back();
    hull.push_back(i);
  }
  std::vector<bool> chosen(front.size(), false);
  size_t left = kMostOptions;
  for (size_t h = 0; h < hull.size() && left > 0; ++h, --left)
    chosen[hull[hull.size() <= kMostOptions ? h : h * (hull.size() - 1) / (kMostOptions - 1)]] = true;
  for (size_t k = 1; k <= left; ++k) chosen[k * front.size() / (left + 1)] = true;
  std::vector<Point> out;
  for (size_t i = 0; i < front.size(); ++i)
    if (chosen[i]) out.push_back(std::move(front[i]));
  return out;
}

}  // namespace

std::vector<SavedSet> saved_sets(const ModelConfig& config, const LayerGraph& g, const StageAnalysis& a,
                                 const CostModel& costs, int64_t tokens, int64_t sequence) {
  std::vector<double> op_seconds;
  for (const Op& op : g.ops)
    op_seconds.push_back(info(op.kind).loss ? 0 : costs.seconds(config, g, op, false, false, tokens, sequence));
  Rebuild rebuild(g, a, op_seconds);

  // Values that backward reads, wide ones in groups that stand or fall together: those that one op makes, and those
  // that the same op reads first (q, k and v; gate and up). Narrow ones follow from the wide ones.
  size_t widest = 1;
  for (const ValueInfo& v : g.values) widest = std::max(widest, bytes_of(v, tokens));
  std::vector<int> narrow;
  const std::vector<bool> cheap = cheap_to_rebuild(g, a);
  std::map<std::pair<bool, int>, std::vector<int>> groups;  // (cheap, first reader)
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (!a.read_by_backward[v] || static_cast<int>(v) == g.input || a.producer[v] < 0) continue;
    if (info(g.ops[idx(a.producer[v])].kind).loss) continue;
    if (bytes_of(g.values[v], tokens) * 16 <= widest) {
      narrow.push_back(static_cast<int>(v));
      continue;
    }
    int reader = static_cast<int>(g.ops.size());
    for (size_t o = g.ops.size(); o-- > 0;)
      if (std::count(g.ops[o].in.begin(), g.ops[o].in.end(), static_cast<int>(v)) > 0) reader = static_cast<int>(o);
    const bool free = cheap[v];
    groups[{free, free ? reader * 1000 + static_cast<int>(v) : reader}].push_back(static_cast<int>(v));
  }
  std::vector<std::vector<int>> units;  // products first: with more groups than can be tried, the nearly free ones go
  for (const auto& [key, values] : groups) units.push_back(values);
  constexpr size_t kMostUnits = 14;
  const size_t n = std::min(units.size(), kMostUnits);

  std::vector<Point> points;
  for (uint32_t subset = 0; subset < 1u << n; ++subset) {
    Point p{keep_input(g), 0, 0};
    for (size_t u = 0; u < n; ++u)
      if (subset >> u & 1u)
        for (const int v : units[u]) p.keep[idx(v)] = true;
    p.seconds = rebuild.seconds(p.keep);
    // A narrow value stays when that saves more time than the wide ones save per byte on the whole.
    for (const int v : narrow) {
      p.keep[idx(v)] = true;
      const double with = rebuild.seconds(p.keep);
      if (with < p.seconds * (1 - 1e-9))
        p.seconds = with;
      else
        p.keep[idx(v)] = false;
    }
    p.bytes = kept_bytes(g, p.keep, tokens);
    points.push_back(std::move(p));
  }
  SavedSet all = keep_all(g, a);
  points.push_back({all, kept_bytes(g, all, tokens), 0});
  // The input alone is always possible, and the planner knows it.
  const SavedSet alone = keep_input(g);
  points.push_back({alone, 0, rebuild.seconds(alone)});
  std::vector<SavedSet> out;
  for (Point& p : front_of(std::move(points)))
    if (p.bytes > 0) out.push_back(std::move(p.keep));
  return out;
}

namespace {

// Stages of one kind (and the same place in the chain of gradients), by number.
std::vector<int> kinds_of(const ModelGraph& model, const std::vector<StageAnalysis>& analysis) {
  std::vector<int> kind(model.stages.size(), -1);
  std::vector<size_t> first;
  for (size_t s = 0; s < kind.size(); ++s) {
    for (size_t k = 0; k < first.size() && kind[s] < 0; ++k)
      if (model.stages[first[k]].alike(model.stages[s]) && analysis[first[k]] == analysis[s])
        kind[s] = static_cast<int>(k);
    if (kind[s] >= 0) continue;
    kind[s] = static_cast<int>(first.size());
    first.push_back(s);
  }
  return kind;
}

struct Peak {
  size_t entry = 0, peak = 0;  // bytes live when an action begins; most during it
};

std::vector<Peak> action_peaks(const Program& p) {
  const std::vector<size_t> live = live_bytes(p);
  std::vector<size_t> starts(p.instrs.size() + 1, 0), ends(p.instrs.size() + 1, 0);
  for (const Buffer& b : p.buffers) {
    starts[idx(b.first)] += b.bytes;
    ends[idx(b.last)] += b.bytes;
  }
  std::vector<Peak> out;
  for (const ActionSpan& a : p.actions) {
    Peak x;
    if (a.first < a.last) x.entry = live[idx(a.first)] - starts[idx(a.first)];
    for (int t = a.first; t < a.last; ++t) x.peak = std::max(x.peak, live[idx(t)]);
    out.push_back(x);
  }
  return out;
}

}  // namespace

namespace {
// What crosses a stage is f32 as a gradient.
size_t gradient_bytes(const LayerGraph& g, int64_t tokens) {
  if (g.input < 0) return 0;
  ValueInfo v = g.values[idx(g.input)];
  v.dtype = DType::f32;
  return bytes_of(v, tokens);
}

// The tail's forward (its norm) and its backward (the loss) follow each other: one op of the chain.
StageCost tail_cost(const ModelGraph& model, const Program& p, const ProgramCost& seconds,
                    const std::vector<Peak>& peaks, int64_t tokens) {
  const LayerGraph& g = model.stages.back();
  StageCost c;
  c.input = bytes_of(g.values[idx(g.input)], tokens);
  c.d_input = gradient_bytes(g, tokens);
  size_t entry = std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < p.actions.size(); ++i) {
    if (idx(p.actions[i].stage) + 1 != model.stages.size()) continue;
    if (p.actions[i].kind == Action::Kind::forward) entry = peaks[i].entry;
    c.backward_extra = std::max(c.backward_extra, peaks[i].peak - std::min(peaks[i].peak, entry));
    c.backward += seconds.actions[i];
  }
  return c;
}
}  // namespace

ChainModel chain_of(const ModelGraph& model, const CostModel& costs, const ProgramOptions& options) {
  ChainModel out;
  const auto analysis = analyse(model);
  const size_t stages = model.stages.size();
  while (idx(out.first_stage) < stages && !analysis[idx(out.first_stage)].has_backward) ++out.first_stage;
  const size_t first = idx(out.first_stage);
  if (first == stages) throw Error(ErrorCode::usage, "nothing to train: no stage runs backward");

  // One stage of each kind, in order, stands for all: the plans of a thousand layers are measured on a few.
  const std::vector<int> kind = kinds_of(model, analysis);
  ModelGraph small{.config = model.config, .dtype = model.dtype, .lora = model.lora, .stages = {}};
  std::vector<int> stands_for;  // by kind: stage of `small`
  for (size_t s = 0; s < stages; ++s)
    if (kind[s] == static_cast<int>(stands_for.size())) {
      stands_for.push_back(static_cast<int>(small.stages.size()));
      small.stages.push_back(model.stages[s]);
    }
  const auto small_analysis = analyse(small);
  for (size_t s = 0; s < stages; ++s)
    if (!(small_analysis[idx(stands_for[idx(kind[s])])] == analysis[s])) {  // an order that a few cannot show
      small = model;                                                        // each stage for itself
      break;
    }
  const bool whole = small.stages.size() == stages;
  const auto stand_in = [&](size_t s) { return whole ? s : idx(stands_for[idx(kind[s])]); };

  const auto a_small = analyse(small);
  std::vector<std::vector<SavedSet>> sets(small.stages.size());
  size_t most = 0;
  for (size_t s = 0; s < small.stages.size(); ++s) {
    // The tail's loss needs what its forward made, whatever is kept.
    if (a_small[s].has_backward && small.stages[s].output >= 0)
      sets[s] = saved_sets(small.config, small.stages[s], a_small[s], costs, options.max_tokens, options.sequence);
    most = std::max(most, sets[s].size());
  }
  ProgramOptions unplaced = options;
  unplaced.place = false;
  std::vector<StageCost> cost(small.stages.size());
  StageCost tail;
  const int last = static_cast<int>(small.stages.size()) - 1;
  // k = -1: each stage keeps its input alone; then its k-th option.
  for (int k = -1; k < static_cast<int>(most); ++k) {
    Schedule schedule{.name = "to measure", .actions = {}};
    const auto option = [&](size_t s) { return std::min(k, static_cast<int>(sets[s].size()) - 1); };
    for (size_t s = 0; s < small.stages.size(); ++s) {
      const LayerGraph& g = small.stages[s];
      SavedSet keep = option(s) >= 0 ? sets[s][idx(option(s))] : keep_input(g);
      if (!a_small[s].has_backward) keep.assign(g.values.size(), false);
      schedule.actions.push_back({Action::Kind::forward, static_cast<int>(s), keep});
    }
    for (int s = last; s >= 0; --s)
      if (a_small[idx(s)].has_backward) schedule.actions.push_back({Action::Kind::backward, s, {}});
    const Program p = compile(small, schedule, unplaced);
    const ProgramCost seconds = cost_of(p, small, costs);
    const std::vector<Peak> peaks = action_peaks(p);
    if (k < 0) tail = tail_cost(small, p, seconds, peaks, options.max_tokens);
    for (size_t i = 0; i < p.actions.size(); ++i) {
      const auto s = idx(p.actions[i].stage);
      if (static_cast<int>(s) == last) continue;
      const LayerGraph& g = small.stages[s];
      const size_t output = g.output >= 0 ? bytes_of(g.values[idx(g.output)], options.max_tokens) : 0;
      const size_t rise = peaks[i].peak - std::min(peaks[i].peak, peaks[i].entry);
      const bool forward = p.actions[i].kind == Action::Kind::forward;
      StageCost& c = cost[s];
      if (k < 0) {
        if (g.input >= 0) c.input = bytes_of(g.values[idx(g.input)], options.max_tokens);
        (forward ? c.forward : c.backward) = seconds.actions[i];
        (forward ? c.forward_extra : c.backward_extra) = forward ? rise - std::min(rise, output) : rise;
        if (a_small[s].input_requires_grad) c.d_input = gradient_bytes(g, options.max_tokens);
        continue;
      }
      if (option(s) != k) continue;
      c.options.resize(sets[s].size());
      StageOption& o = c.options[idx(k)];
      o.kept = kept_bytes(g, sets[s][idx(k)], options.max_tokens);
      if (forward)
        o.forward_extra = rise - std::min(rise, output + o.kept);
      else
        o.backward_extra = rise, o.backward = seconds.actions[i];
    }
  }
  cost.back() = tail;
  for (size_t s = 0; s < stages; ++s) {
    const StageCost& c = cost[stand_in(s)];
    if (s < first) {
      out.seconds_below += c.forward;
      continue;
    }
    out.chain.stages.push_back(c);
    out.sets.push_back(sets[stand_in(s)]);
  }
  const LayerGraph& end = model.stages.back();
  for (const Op& op : end.ops)
    if (info(op.kind).loss) out.outside += bytes_of(end.values[idx(op.out[0])], options.max_tokens);
  return out;
}

void allow_offload(ChainModel& chain, const ModelGraph& model, const CostModel& costs, size_t host_bytes) {
  size_t sum = 0;
  for (size_t i = 0; i < chain.chain.stages.size(); ++i)
    if (may_offload(model.stages[idx(chain.first_stage) + i])) sum += chain.chain.stages[i].input;
  if (host_bytes > 0 && sum > host_bytes && chain.chain.stages.size() > 200) return;
  sum = 0;
  for (size_t i = 0; i < chain.chain.stages.size(); ++i) {
    StageCost& c = chain.chain.stages[i];
    if (!may_offload(model.stages[idx(chain.first_stage) + i])) continue;
    sum += c.input;
    if (host_bytes > 0 && sum > host_bytes) break;
    const auto bytes = static_cast<double>(c.input);
    c.may_offload = true;
    c.store = bytes * costs.seconds_per_host_byte(true);
    c.load = bytes * costs.seconds_per_host_byte(false);
    c.traffic = bytes * costs.seconds_per_kept_byte();
  }
}

Schedule schedule_of(const ModelGraph& model, const ChainModel& chain, const std::vector<ChainOp>& ops,
                     const std::string& name) {
  Schedule s{.name = name, .actions = {}};
  const auto nothing = [&](int stage) { return SavedSet(model.stages[idx(stage)].values.size(), false); };
  for (int i = 0; i < chain.first_stage; ++i) s.actions.push_back({Action::Kind::forward, i, nothing(i)});
  for (const ChainOp& op : ops) {
    const int stage = chain.first_stage + op.stage;
    const LayerGraph& g = model.stages[idx(stage)];
    const bool tail = idx(stage) + 1 == model.stages.size();
    switch (op.kind) {
      case ChainOp::Kind::forward_drop:
        s.actions.push_back({Action::Kind::forward, stage, nothing(stage)});
        break;
      case ChainOp::Kind::forward_keep:
        s.actions.push_back({Action::Kind::forward, stage, keep_input(g), op.offload});
        break;
      case ChainOp::Kind::save:
        s.actions.push_back({Action::Kind::forward, stage, chain.sets[idx(op.stage)][idx(op.option)], op.offload});
        break;
      case ChainOp::Kind::backward:
        if (tail) s.actions.push_back({Action::Kind::forward, stage, keep_input(g)});
        s.actions.push_back({Action::Kind::backward, stage, {}});
        break;
    }
  }
  return s;
}

}  // namespace bantam
