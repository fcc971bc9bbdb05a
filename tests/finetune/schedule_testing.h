// SPDX-License-Identifier: Apache-2.0
// Random schedules for tests.
#pragma once
#include <random>

#include "finetune/recompute/schedule.h"

namespace bantam::testing {

// A random persistent schedule: segments of any length at any level, and any set of values kept. With
// `offload`, about half of the layers' inputs that are kept lie in host memory.
class RandomSchedule {
 public:
  RandomSchedule(const ModelGraph& g, unsigned seed, bool offload = false)
      : g_(g), analysis_(analyse(g)), rng_(seed), offload_(offload) {}
  Schedule draw() {
    s_ = {.name = "random", .actions = {}};
    int first = 0;
    while (!analysis_[static_cast<size_t>(first)].has_backward) forward(first, false), ++first;
    emit(first, static_cast<int>(g_.stages.size()) - 1);
    return s_;
  }

 private:
  size_t below(size_t n) { return rng_() % n; }
  bool to_host(const LayerGraph& l) { return offload_ && may_offload(l) && below(2); }
  void forward(int stage, bool keep_the_input) {
    const LayerGraph& l = g_.stages[static_cast<size_t>(stage)];
    s_.actions.push_back({Action::Kind::forward, stage,
                          keep_the_input ? keep_input(l) : SavedSet(l.values.size(), false),
                          keep_the_input && to_host(l)});
  }
  void emit(int i, int j) {
    const LayerGraph& l = g_.stages[static_cast<size_t>(i)];
    if (i == j) {
      if (static_cast<size_t>(i) + 1 == g_.stages.size()) forward(i, true);
      s_.actions.push_back({Action::Kind::backward, i, {}});
    } else if (below(2)) {
      const int p = i + 1 + static_cast<int>(below(static_cast<size_t>(j - i)));
      for (int x = i; x < p; ++x) forward(x, x == i);
      emit(p, j);
      emit(i, p - 1);
    } else {
      SavedSet keep = keep_input(l);
      for (size_t v = 0; v < keep.size(); ++v) keep[v] = keep[v] || below(3) == 0;
      s_.actions.push_back({Action::Kind::forward, i, keep, to_host(l)});
      emit(i + 1, j);
      s_.actions.push_back({Action::Kind::backward, i, {}});
    }
  }
  const ModelGraph& g_;
  std::vector<StageAnalysis> analysis_;
  std::mt19937 rng_;
  bool offload_;
  Schedule s_;
};

}  // namespace bantam::testing
