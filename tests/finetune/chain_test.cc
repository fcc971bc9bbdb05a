// SPDX-License-Identifier: Apache-2.0
// The planner against the simulator and against an exhaustive search, on random chains.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <tuple>

#include "finetune/recompute/chain_planner.h"

using namespace bantam;
using Kind = ChainOp::Kind;

namespace {

// `host`: some inputs may lie in host memory, with copies that ops hide or do not.
Chain random_chain(std::mt19937& rng, int longest, int most_options, bool host = false) {
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  Chain c;
  const int n = 1 + below(longest);
  for (int i = 0; i < n; ++i) {
    StageCost s;
    s.input = static_cast<size_t>(1 + below(6));
    s.d_input = i == 0 && below(2) ? 0 : static_cast<size_t>(1 + below(6));
    s.forward_extra = static_cast<size_t>(below(5));
    s.forward = 1 + below(9);
    s.backward_extra = static_cast<size_t>(below(12));
    s.backward = 2 + below(12);
    if (i + 1 < n)
      for (int k = below(most_options + 1); k > 0; --k)
        s.options.push_back({static_cast<size_t>(1 + below(9)), static_cast<size_t>(below(6)),
                             static_cast<size_t>(below(10)), 1.0 + below(10)});
    if (host && i + 1 < n && below(4)) {
      s.input += static_cast<size_t>(below(6));
      s.may_offload = true;
      s.store = below(9);
      s.load = below(9);
      s.traffic = 0.25 * below(3);
    }
    c.stages.push_back(s);
    if (i > 1 && below(3) == 0) c.stages.back() = c.stages[static_cast<size_t>(i) - 1];  // identical neighbours
  }
  c.stages.back().options.clear();
  c.stages.back().may_offload = false;
  return c;
}

// The fastest persistent schedule (an input that was kept stays until its backward, here or in host memory), by
// Dijkstra over all states. `transient`: the input that was just made and is not kept yet; the next op takes it.
// `loaded`: the one that came back during the last op; the next op is of its stage.
double exhaustive(const Chain& chain, size_t budget) {
  const int n = static_cast<int>(chain.stages.size());
  struct State {
    std::vector<int> kept;  // -2: input not there, -1: input alone, k: with option k
    std::vector<bool> host;
    int transient, gradient, loaded;
    bool operator<(const State& o) const {
      return std::tie(kept, host, transient, gradient, loaded) <
             std::tie(o.kept, o.host, o.transient, o.gradient, o.loaded);
    }
  };
  const auto at = [&](int i) -> const StageCost& { return chain.stages[static_cast<size_t>(i)]; };
  const auto live = [&](const State& s) {
    size_t b = s.gradient < n ? at(s.gradient).d_input : 0;
    for (int i = 0; i < n; ++i) {
      const int k = s.kept[static_cast<size_t>(i)];
      if (k >= -1 && !s.host[static_cast<size_t>(i)]) b += at(i).input;
      if (k >= 0) b += at(i).options[static_cast<size_t>(k)].kept;
    }
    return b + (s.transient >= 0 ? at(s.transient).input : 0);
  };
  std::map<State, double> best;
  using Entry = std::pair<double, State>;
  const auto later = [](const Entry& a, const Entry& b) { return a.first > b.first; };
  std::priority_queue<Entry, std::vector<Entry>, decltype(later)> queue(later);
  State start{std::vector<int>(static_cast<size_t>(n), -2), std::vector<bool>(static_cast<size_t>(n), false), -1, n,
              -1};
  start.kept[0] = -1;
  if (live(start) > budget) return INFINITY;
  const auto push = [&](const State& s, double t) {
    const auto [it, fresh] = best.try_emplace(s, t);
    if (!fresh && it->second <= t) return;
    it->second = t;
    queue.push({t, s});
  };
  push(start, 0);
  while (!queue.empty()) {
    const auto [t, before] = queue.top();
    queue.pop();
    if (best[before] < t) continue;
    if (before.gradient == 0) return t;
    // During the op one input may come back, or none.
    for (int x = -1; x < n; ++x) {
      if (x >= 0 && !before.host[static_cast<size_t>(x)]) continue;
      State s = before;
      if (x >= 0) s.host[static_cast<size_t>(x)] = false;
      s.loaded = x;
      const double copy = x >= 0 ? at(x).load : 0;
      const size_t here = live(s);
      for (int i = 0; i < n; ++i) {
        const bool transient = s.transient == i, kept = s.kept[static_cast<size_t>(i)] >= -1;
        if (s.transient >= 0 && !transient) continue;
        if (before.loaded >= 0 && before.loaded != i) continue;
        if (!transient && !kept) continue;
        if (i == x || s.host[static_cast<size_t>(i)]) continue;
        if (i + 1 == s.gradient) {
          const int k = s.kept[static_cast<size_t>(i)];
          const size_t extra = k >= 0 ? at(i).options[static_cast<size_t>(k)].backward_extra : at(i).backward_extra;
          if (here + extra <= budget) {
            State next = s;
            next.kept[static_cast<size_t>(i)] = -2;
            next.transient = -1;
            next.gradient = i;
            const double own = k >= 0 ? at(i).options[static_cast<size_t>(k)].backward : at(i).backward;
            push(next, t + std::max(copy, own));
          }
        }
        if (i + 1 >= s.gradient || i + 1 >= n || s.kept[static_cast<size_t>(i) + 1] >= -1) continue;
        if (s.kept[static_cast<size_t>(i)] >= 0) continue;
        const auto forward = [&](int keep, bool drop, size_t kept_bytes, size_t extra) {
          if (here + kept_bytes + at(i + 1).input + extra > budget) return;
          State next = s;
          if (!drop) next.kept[static_cast<size_t>(i)] = keep;
          next.transient = i + 1;
          push(next, t + std::max(copy, at(i).forward));
          if (drop || !at(i).may_offload) return;
          next.host[static_cast<size_t>(i)] = true;
          push(next, t + std::max({copy, at(i).forward, at(i).store}) + at(i).traffic);
        };
        if (transient) forward(-1, true, 0, at(i).forward_extra);
        forward(-1, false, 0, at(i).forward_extra);
        for (size_t k = 0; k < at(i).options.size(); ++k)
          forward(static_cast<int>(k), false, at(i).options[k].kept, at(i).options[k].forward_extra);
      }
    }
  }
  return INFINITY;
}

size_t all_bytes(const Chain& c) {
  size_t b = 64;
  for (const auto& s : c.stages) {
    size_t most = s.backward_extra;
    for (const auto& o : s.options) most = std::max(most, o.kept + o.backward_extra + o.forward_extra);
    b += s.input + s.d_input + s.forward_extra + most;
  }
  return b;
}

}  // namespace

TEST_CASE("every plan is legal, within its budget, and takes the time that the programme says") {
  std::mt19937 rng(1);
  int feasible = 0;
  int on_host = 0;
  for (int round = 0; round < 3600; ++round) {
    const Chain c = random_chain(rng, 8, 3, round % 3 == 0);
    const size_t most = all_bytes(c);
    const ChainPlanner exact(c, most, most);
    const size_t budget = 1 + rng() % most;
    const auto p = exact.plan(budget);
    CHECK(p.has_value() == std::isfinite(exact.seconds(budget)));
    CHECK(p.has_value() == (budget >= exact.least_budget()));
    if (p) {
      ++feasible;
      const Simulation s = simulate(c, p->ops);
      CHECK(s.error.empty());
      CHECK(s.peak == p->peak);
      CHECK(s.peak <= budget);
      CHECK(s.seconds == p->seconds);
      CHECK(p->seconds == doctest::Approx(exact.seconds(budget)).epsilon(1e-5));  // nothing is left to refine
      on_host += std::any_of(p->ops.begin(), p->ops.end(), [](const ChainOp& op) { return op.offload; });
    }
    // Coarse slots: still legal and within the budget, and never better than exact.
    const ChainPlanner coarse(c, most, 1 + rng() % 20);
    if (const auto q = coarse.plan(budget)) {
      REQUIRE(p);
      CHECK(q->peak <= budget);
      CHECK(q->seconds <= coarse.seconds(budget) * (1 + 1e-5));
      CHECK(q->seconds >= p->seconds * (1 - 1e-5));
    }
  }
  CHECK(feasible > 1000);
  CHECK(on_host > 60);
}

TEST_CASE("with slots of one byte a plan is the best persistent schedule") {
  std::mt19937 rng(2);
  int compared = 0;
  for (int round = 0; round < 2500; ++round) {
    const Chain c = random_chain(rng, round % 25 == 0 ? 7 : round % 5 == 0 ? 6 : 5, round % 5 == 0 ? 2 : 3);
    const size_t most = all_bytes(c);
    const ChainPlanner planner(c, most, most);
    const size_t least = std::min(planner.least_budget(), most);
    const size_t budget = least - std::min<size_t>(least, 3) + rng() % (most - least + 3);
    const double best = exhaustive(c, budget);
    const auto p = planner.plan(std::min(budget, most));
    REQUIRE(p.has_value() == std::isfinite(best));
    if (!p) continue;
    ++compared;
    CHECK(p->seconds == doctest::Approx(best).epsilon(1e-5));
  }
  CHECK(compared > 1500);
}

TEST_CASE("with inputs that may lie in host memory too, and it needs less or is faster for it") {
  std::mt19937 rng(3);
  int compared = 0, faster = 0, smaller = 0;
  for (int round = 0; round < 1200; ++round) {
    const Chain c = random_chain(rng, round % 40 == 0 ? 6 : round % 4 == 0 ? 5 : 4, 2, true);
    Chain here = c;
    for (StageCost& s : here.stages) s.may_offload = false;
    const size_t most = all_bytes(c);
    const ChainPlanner planner(c, most, most), without(here, most, most);
    CHECK(planner.least_budget() <= without.least_budget());
    smaller += planner.least_budget() < without.least_budget();
    const size_t least = std::min(planner.least_budget(), most);
    const size_t budget = least - std::min<size_t>(least, 2) + rng() % std::min<size_t>(24, most - least + 3);
    const double best = exhaustive(c, budget);
    const auto p = planner.plan(std::min(budget, most));
    REQUIRE(p.has_value() == std::isfinite(best));
    if (!p) continue;
    ++compared;
    CHECK(p->seconds == doctest::Approx(best).epsilon(1e-5));
    const auto q = without.plan(std::min(budget, most));
    const bool offloads = std::any_of(p->ops.begin(), p->ops.end(), [](const ChainOp& op) { return op.offload; });
    if (q) CHECK(p->seconds <= q->seconds * (1 + 1e-6));
    if (offloads && q) CHECK(p->seconds < q->seconds);  // only where it pays
    faster += offloads && q;
  }
  CHECK(compared > 800);
  CHECK(faster > 50);
  CHECK(smaller > 50);
}

TEST_CASE("the simulator refuses what is not legal") {
  Chain c;
  for (int i = 0; i < 3; ++i)
    c.stages.push_back({.input = 4, .d_input = 8, .forward = 1, .backward = 2, .options = {}});
  c.stages[0].options = {{.kept = 5, .backward = 1}};
  const ChainOp keep0{Kind::forward_keep, 0, 0}, keep1{Kind::forward_keep, 1, 0}, drop0{Kind::forward_drop, 0, 0};
  const ChainOp b0{Kind::backward, 0, 0}, b1{Kind::backward, 1, 0}, b2{Kind::backward, 2, 0};
  CHECK(simulate(c, {keep0, keep1, b2, b1, b0}).error.empty());
  CHECK(simulate(c, {keep0, keep1, b2, b1}).error == "backward ended at stage 1");
  CHECK(simulate(c, {keep0, b1}).error == "stage 1: backward without the gradient of its output");
  CHECK(simulate(c, {drop0, keep1, b2, b1, b0}).error == "stage 0: its input is not there");
  CHECK(simulate(c, {keep0, keep1, {Kind::forward_keep, 2, 0}}).error == "stage 2: the last stage has no forward");
  CHECK(simulate(c, {keep0, keep0}).error == "stage 0: its output is there already");
  CHECK(simulate(c, {{Kind::save, 0, 1}}).error == "stage 0: no such option");
  CHECK(simulate(c, {keep1}).error == "stage 1: its input is not there");
  CHECK(simulate(c, {keep0, keep1, b2, b1, keep0}).error == "stage 0: nobody needs its output any more");
  CHECK(simulate(c, {{ChainOp{Kind::backward, 5, 0}}}).error == "stage 5: there is no such stage");
  const ChainOp host0{Kind::forward_keep, 0, 0, true};
  CHECK(simulate(c, {host0, keep1, b2, b1, b0}).error == "stage 0: its input cannot go to host memory");
  // By hand: 4 | keep0: +4 | keep1: +4 | b2: -4 +8, ...
  const Simulation s = simulate(c, {{Kind::save, 0, 0}, keep1, b2, b1, b0});
  CHECK(s.peak == 4 + 5 + 4 + 8);
  CHECK(s.seconds == 1 + 1 + 2 + 2 + 1);

  c.stages[0].may_offload = true;
  c.stages[0].store = 3, c.stages[0].load = 5, c.stages[0].traffic = 0.5;
  CHECK(simulate(c, {{Kind::forward_drop, 0, 0, true}, keep1, b2, b1, b0}).error ==
        "stage 0: its input cannot go to host memory");
  // Input 0 is not there after its forward (4 + 4), nor during b2 (4 + 4 + 0, then 4 + 8); it comes back during b1,
  // which is 2 long, and is there with input 1 and the gradient of input 2.
  const Simulation h = simulate(c, {host0, keep1, b2, b1, b0});
  CHECK(h.error.empty());
  CHECK(h.peak == 4 + 8 + 4);
  CHECK(h.seconds == 3 + 0.5 + 1 + 2 + 5 + 2);
  // Needed at once, it comes back without anything beside it.
  c.stages.resize(2);
  CHECK(simulate(c, {host0, b1, b0}).seconds == 3 + 0.5 + 5 + 2);
  CHECK(simulate(c, {host0, keep0}).error == "stage 0: its output is there already");
}

TEST_CASE("with memory to spare nothing is rebuilt; with less, time only grows") {
  Chain c;
  for (int i = 0; i < 40; ++i)
    c.stages.push_back({.input = 100,
                        .d_input = 200,
                        .forward_extra = 300,
                        .forward = 1,
                        .backward_extra = 900,
                        .backward = 1.8,
                        .options = {{300, 300, 600, 1.3}, {500, 300, 500, 1.1}, {900, 300, 400, 1.0}}});
  c.stages.push_back({.input = 100, .d_input = 200, .backward_extra = 500, .backward = 3, .options = {}});
  const ChainPlanner planner(c, 60000);
  const auto roomy = planner.plan(60000);
  REQUIRE(roomy);
  CHECK(roomy->seconds == doctest::Approx(c.without_recompute()));
  double before = 0;
  for (size_t budget = 60000; budget >= planner.least_budget(); budget -= 1000) {
    const auto p = planner.plan(budget);
    REQUIRE(p);
    CHECK(p->peak <= budget);
    CHECK(p->seconds >= before * (1 - 1e-6));
    before = p->seconds;
    if (budget < 1000) break;
  }
  // Below what each layer's input takes, several levels of segments: more than one forward again.
  CHECK(planner.least_budget() < 41 * 100);
  CHECK(before > c.without_recompute() * 1.4);
}

TEST_CASE("deep chains of identical layers are planned") {
  Chain c;
  for (int i = 0; i < 1000; ++i)
    c.stages.push_back({.input = 512 << 10,
                        .d_input = 1 << 20,
                        .forward_extra = 3 << 20,
                        .forward = 1e-2,
                        .backward_extra = 9 << 20,
                        .backward = 1.7e-2,
                        .options = {{1 << 20, 3 << 20, 6 << 20, 1.5e-2}, {4 << 20, 3 << 20, 5 << 20, 1e-2}}});
  c.stages.push_back(
      {.input = 512 << 10, .d_input = 1 << 20, .backward_extra = 20 << 20, .backward = 0.1, .options = {}});
  const size_t all = size_t{1001} * (5 << 20);
  const auto t0 = std::chrono::steady_clock::now();
  const ChainPlanner planner(c, all / 6);
  const auto p = planner.plan(all / 6);
  MESSAGE("1,000 identical layers: " << std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count()
                                     << " s");
  REQUIRE(p);
  CHECK(p->peak <= all / 6);
  // What one level of options can do with that: the rest of the bytes over all inputs, at the best price.
  const double bytes = static_cast<double>(all) / 6 - 1001.0 * (512 << 10) - (30 << 20);
  const double bound = c.without_recompute() + 1000 * 0.7e-2 - bytes / (4 << 20) * 0.7e-2;
  CHECK(p->seconds <= bound * 1.01);
}
