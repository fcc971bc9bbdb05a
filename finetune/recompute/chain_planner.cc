// SPDX-License-Identifier: Apache-2.0
#include "chain_planner.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../../kernels/error.h"
#include "../../kernels/hash.h"

namespace bantam {

namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();
constexpr size_t kMostEntries = size_t{48} << 20;  // of the table: 192 MiB
constexpr double kMostWork = 6e9;                  // inner steps: about a second

// out = min(out, a + b + c): the inner loop of the programme.
void min_add(float* out, const float* a, const float* b, float c, int64_t n) {
  for (int64_t m = 0; m < n; ++m) {
    const float v = a[m] + b[m] + c;
    out[m] = v < out[m] ? v : out[m];
  }
}

// Slots of a difference of bytes, rounded up.
int64_t slots_between(size_t more, size_t less, size_t slot) {
  return more >= less ? static_cast<int64_t>((more - less + slot - 1) / slot)
                      : -static_cast<int64_t>((less - more) / slot);
}

// Lengths of the first part of a segment that are tried: all of them in chains of up to 100 stages. In deeper ones the
// best of long parts is flat, and a few hundredths of the pairs are enough.
bool tried(int length, size_t stages) {
  return stages <= 100 || length <= 32 || (length <= 128 && length % 4 == 0) || (length <= 512 && length % 16 == 0) ||
         length % 64 == 0;
}

}  // namespace

ChainPlanner::ChainPlanner(const Chain& chain, size_t max_budget, size_t slots) : chain_(chain) {
  if (chain_.stages.empty()) throw Error(ErrorCode::internal, "a chain without stages");
  number_intervals();
  number_loads();
  const double kinds = static_cast<double>(representative_.size() * loads_.size());
  if (slots == 0) {
    // Sizes are rounded up to slots, so a long chain needs more of them.
    slots = chain_.stages.size() <= 100 ? 2048 : 4096;
    double pairs = 0;
    const double ways = loads_.size() > 1 ? 2 : 1;
    for (const auto& [i, j] : representative_) pairs += ways * static_cast<double>(loads_.size()) * (j - i + 1);
    slots = std::min(slots, static_cast<size_t>(static_cast<double>(kMostEntries) / kinds));
    slots = std::max<size_t>(64, std::min(slots, static_cast<size_t>(kMostWork / pairs)));
  }
  slot_ = std::max<size_t>(1, (max_budget + slots - 1) / slots);
  width_ = static_cast<int64_t>(max_budget / slot_) + 1;

  values_.assign(representative_.size() * loads_.size() * static_cast<size_t>(width_), kNever);
  std::vector<size_t> order(representative_.size());
  for (size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return representative_[a].second - representative_[a].first < representative_[b].second - representative_[b].first;
  });
  for (const size_t k : order)
    for (size_t l = 0; l < loads_.size(); ++l)
      solve(representative_[k].first, representative_[k].second, static_cast<int>(l),
            values_.data() + (k * loads_.size() + l) * static_cast<size_t>(width_));
}

void ChainPlanner::number_loads() {
  loads_ = {{}};
  for (const StageCost& s : chain_.stages) {
    const Load load{s.input, s.load};
    const auto it = std::find(loads_.begin() + 1, loads_.end(), load);
    load_of_.push_back(s.may_offload ? static_cast<int>(it - loads_.begin()) : 0);
    if (s.may_offload && it == loads_.end()) loads_.push_back(load);
  }
}

size_t ChainPlanner::gradient_after(int j) const {
  const auto next = static_cast<size_t>(j) + 1;
  return next < chain_.stages.size() ? chain_.stages[next].d_input : 0;
}

// Intervals that look alike get one number: the number of the interval without its last stage, with what that stage is.
void ChainPlanner::number_intervals() {
  const size_t n = chain_.stages.size();
  std::vector<int> type(n);
  std::vector<size_t> of_type;
  for (size_t i = 0; i < n; ++i) {
    size_t t = 0;
    while (t < of_type.size() && chain_.stages[of_type[t]] != chain_.stages[i]) ++t;
    if (t == of_type.size()) of_type.push_back(i);
    type[i] = static_cast<int>(t);
  }
  struct Key {
    int before, type;
    size_t gradient;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const {
      return mix64(mix64(static_cast<uint64_t>(k.before) << 32 ^ static_cast<uint64_t>(k.type)) ^ k.gradient);
    }
  };
  std::unordered_map<Key, int, Hash> known;
  kinds_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    int before = -1;
    for (size_t j = i; j < n; ++j) {
      const auto [it, fresh] = known.try_emplace({before, type[j], gradient_after(static_cast<int>(j))},
                                                 static_cast<int>(representative_.size()));
      if (fresh) representative_.emplace_back(static_cast<int>(i), static_cast<int>(j));
      kinds_[i].push_back(before = it->second);
    }
  }
}

// Every way to begin stages i .. j (i < j) when `load` comes back during their last op. `segment(p, from, kept,
// seconds, its)`: input p is kept; `save(k, from, kept, seconds, its)`: stage i is kept with option k. From `from`
// slots on it is possible, `kept` slots are taken meanwhile (below 0: given), and `its` is the load of input i: 0 where
// it stays. What leaves everything on the device comes first, so that host memory is used where that is faster only.
template <class Segment, class Save>
void ChainPlanner::for_each_choice(int i, int j, int load, Segment segment, Save save) const {
  const auto at = [&](int s) -> const StageCost& { return chain_.stages[static_cast<size_t>(s)]; };
  const size_t gradient = gradient_after(j);
  const int of_input = load_of_[static_cast<size_t>(i)];
  const Load& last = loads_[static_cast<size_t>(load)];
  for (const bool offload : {false, true}) {
    if (offload && of_input == 0) break;
    const int its = offload ? of_input : 0;
    const size_t gone = offload ? at(i).input : 0;
    const double first = offload ? std::max(at(i).forward, at(i).store) + at(i).traffic : at(i).forward;
    int64_t need = 0;
    double again = 0;
    for (int p = i + 1; p <= j; ++p) {
      const int x = p - 1;
      const size_t bytes = gradient + (x == i ? 0 : at(x).input) + at(p).input + at(x).forward_extra;
      need = std::max(need, slots_between(bytes, x == i ? 0 : gone, slot_));
      again += x == i ? first : at(x).forward;
      if (!tried(p - i, chain_.stages.size())) continue;
      const int64_t kept = slots_between(at(p).input, gone, slot_);
      segment(p, std::max(need, kept), kept, static_cast<float>(again), its);
    }
    for (size_t k = 0; k < at(i).options.size(); ++k) {
      const StageOption& o = at(i).options[k];
      const size_t stays = o.kept + at(i + 1).input;
      const int64_t kept = slots_between(stays, gone, slot_);
      const int64_t from = std::max({kept, slots_of(gradient + stays + o.forward_extra),
                                     slots_of(at(i + 1).d_input + o.kept + o.backward_extra + last.bytes)});
      save(static_cast<int>(k), from, kept, static_cast<float>(first + std::max(o.backward, last.seconds)), its);
    }
  }
}

void ChainPlanner::solve(int i, int j, int load, float* out) const {
  if (i == j) {
    const StageCost& stage = chain_.stages[static_cast<size_t>(i)];
    const Load& last = loads_[static_cast<size_t>(load)];
    const auto seconds = static_cast<float>(std::max(stage.backward, last.seconds));
    for (int64_t m = slots_of(gradient_after(j) + stage.backward_extra + last.bytes); m < width_; ++m) out[m] = seconds;
    return;
  }
  for_each_choice(
      i, j, load,
      [&](int p, int64_t from, int64_t kept, float seconds, int its) {
        const int64_t whole = std::min(width_, width_ + kept);  // up to here the middle's row has a value of its own
        const float* const rest = row(i, p - 1, load);
        if (from < whole) min_add(out + from, row(p, j, its) + from - kept, rest + from, seconds, whole - from);
        for (int64_t m = std::max(from, whole); m < width_; ++m)
          out[m] = std::min(out[m], value(p, j, its, m - kept) + rest[m] + seconds);
      },
      [&](int, int64_t from, int64_t kept, float seconds, int its) {
        for (int64_t m = from; m < width_; ++m) out[m] = std::min(out[m], seconds + value(i + 1, j, its, m - kept));
      });
}

// Takes the choice that solve() took at m.
void ChainPlanner::emit(int64_t m, int i, int j, int load, std::vector<ChainOp>& ops) const {
  using Kind = ChainOp::Kind;
  m = std::min(m, width_ - 1);
  if (i == j) {
    ops.push_back({Kind::backward, i, 0});
    return;
  }
  float best = kNever;
  int best_p = -1, best_option = -1, best_its = 0;
  int64_t best_kept = 0;
  for_each_choice(
      i, j, load,
      [&](int p, int64_t from, int64_t kept, float seconds, int its) {
        if (m < from) return;
        const float v = value(p, j, its, m - kept) + row(i, p - 1, load)[m] + seconds;
        if (v < best) best = v, best_p = p, best_option = -1, best_kept = kept, best_its = its;
      },
      [&](int k, int64_t from, int64_t kept, float seconds, int its) {
        if (m < from) return;
        const float v = seconds + value(i + 1, j, its, m - kept);
        if (v < best) best = v, best_p = -1, best_option = k, best_kept = kept, best_its = its;
      });
  if (best_option >= 0) {
    ops.push_back({Kind::save, i, best_option, best_its > 0});
    emit(m - best_kept, i + 1, j, best_its, ops);
    ops.push_back({Kind::backward, i, 0});
  } else if (best_p >= 0) {
    for (int x = i; x < best_p; ++x)
      ops.push_back({x == i ? Kind::forward_keep : Kind::forward_drop, x, 0, x == i && best_its > 0});
    emit(m - best_kept, best_p, j, best_its, ops);
    emit(m, i, best_p - 1, load, ops);
  } else {
    throw Error(ErrorCode::internal, str("planner: no choice for stages ", i, " to ", j, " in ", m, " slots"));
  }
}

double ChainPlanner::seconds(size_t budget) const {
  const size_t first = chain_.stages[0].input;
  if (budget < first) return kNever;
  const auto m = std::min(static_cast<int64_t>((budget - first) / slot_), width_ - 1);
  return row(0, static_cast<int>(chain_.stages.size()) - 1, 0)[m];
}

size_t ChainPlanner::least_budget() const {
  const float* r = row(0, static_cast<int>(chain_.stages.size()) - 1, 0);
  int64_t m = 0;
  while (m < width_ && r[m] == kNever) ++m;
  return m == width_ ? static_cast<size_t>(width_) * slot_ + chain_.stages[0].input
                     : static_cast<size_t>(m) * slot_ + chain_.stages[0].input;
}

std::optional<ChainPlan> ChainPlanner::plan(size_t budget) const {
  if (!std::isfinite(seconds(budget))) return std::nullopt;
  const auto m = std::min(static_cast<int64_t>((budget - chain_.stages[0].input) / slot_), width_ - 1);
  ChainPlan p;
  emit(m, 0, static_cast<int>(chain_.stages.size()) - 1, 0, p.ops);
  refine(budget, p);
  const Simulation s = simulate(chain_, p.ops);
  if (!s.error.empty() || s.peak > budget)
    throw Error(ErrorCode::internal, str("planner: its schedule ", s.error.empty() ? "is over budget" : s.error));
  p.peak = s.peak;
  p.seconds = s.seconds;
  return p;
}

// Sizes were rounded up, so there is room left: better options for single stages, dearest rebuilding per byte first.
void ChainPlanner::refine(size_t budget, ChainPlan& plan) const {
  using Kind = ChainOp::Kind;
  struct Site {
    size_t op;
    int stage;
  };
  std::vector<Site> sites;  // forwards whose set may grow: the stage's next op is its backward
  std::vector<int> next(chain_.stages.size(), -1);
  for (size_t t = plan.ops.size(); t-- > 0;) {
    const ChainOp& op = plan.ops[t];
    const auto s = static_cast<size_t>(op.stage);
    const bool before_backward = next[s] == static_cast<int>(Kind::backward);
    if (before_backward && (op.kind == Kind::save || op.kind == Kind::forward_keep)) sites.push_back({t, op.stage});
    next[s] = static_cast<int>(op.kind);
  }
  const auto kept_now = [&](const Site& s) {
    const StageCost& c = chain_.stages[static_cast<size_t>(s.stage)];
    const ChainOp& op = plan.ops[s.op];
    return op.kind == Kind::save ? c.options[static_cast<size_t>(op.option)] : StageOption{0, 0, 0, c.backward};
  };
  struct Step {
    size_t site;
    int option;
    double gain;  // seconds per byte
  };
  Simulation now = simulate(chain_, plan.ops);
  if (!now.error.empty()) return;
  const bool long_chain = chain_.stages.size() > 200;
  for (bool again = true; again;) {
    again = false;
    std::vector<Step> steps;
    for (size_t s = 0; s < sites.size(); ++s) {
      const StageOption have = kept_now(sites[s]);
      const auto& options = chain_.stages[static_cast<size_t>(sites[s].stage)].options;
      for (size_t k = 0; k < options.size(); ++k) {
        if (options[k].backward >= have.backward) continue;
        const double more = options[k].kept > have.kept ? static_cast<double>(options[k].kept - have.kept) : 1.0;
        if (long_chain && now.peak + options[k].kept > budget + have.kept) continue;  // nearly always in vain
        steps.push_back({s, static_cast<int>(k), (have.backward - options[k].backward) / more});
      }
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.gain > b.gain; });
    std::vector<bool> moved(sites.size(), false);
    for (const Step& step : steps) {
      if (moved[step.site]) continue;
      ChainOp& op = plan.ops[sites[step.site].op];
      const size_t more = chain_.stages[static_cast<size_t>(op.stage)].options[static_cast<size_t>(step.option)].kept;
      if (long_chain && now.peak + more > budget + kept_now(sites[step.site]).kept) continue;
      const ChainOp before = op;
      op.kind = Kind::save;
      op.option = step.option;
      const Simulation then = simulate(chain_, plan.ops);
      if (then.error.empty() && then.peak <= budget && then.seconds < now.seconds) {
        now = then;
        moved[step.site] = again = true;
      } else {
        op = before;
      }
    }
  }
  // The same room takes inputs back from host memory, where that saves time.
  for (ChainOp& op : plan.ops) {
    if (!op.offload) continue;
    op.offload = false;
    const Simulation then = simulate(chain_, plan.ops);
    if (then.peak <= budget && then.seconds < now.seconds)
      now = then;
    else
      op.offload = true;
  }
}

}  // namespace bantam
