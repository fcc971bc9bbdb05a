// SPDX-License-Identifier: Apache-2.0
// What `bantam plan` says beyond the plan itself: every strategy side by side, the largest batch and length that fit,
// what checkpointing leaves as it is, and what to change first.
#pragma once
#include <string>
#include <vector>

#include "planning.h"

namespace bantam {

struct StrategyRow {
  std::string name;        ///< "none", "selective", "auto at 75 %", "true", "true, offloaded", "sqrt"
  size_t activations = 0;  ///< bytes of the arena
  size_t total = 0;        ///< of the whole plan, as the limit counts
  double overhead = 0;     ///< seconds over those of `none`, less 1
  bool fits = false, chosen = false;
};

struct Largest {
  int64_t micro_batch_size = 0, max_seq_length = 0;  ///< each with the other as in the recipe; 0: none fits
};

struct LargestRow {
  std::string name, key;  ///< for people; in JSON
  Largest most;
};

struct PlanReport {
  std::vector<StrategyRow> strategies;
  std::vector<LargestRow> largest;  ///< with `false`, `true`, and on a device `true` with offloaded inputs
  size_t logits_bytes = 0;          ///< f32 logits of the largest micro-batch: not allocated
  size_t layer_inputs = 0;          ///< what `true` keeps: one input per layer
  FitAnswer answer;                 ///< where the plan does not fit
};

PlanReport report_of(const Planned& planned);
std::string report_text(const Planned& planned, const PlanReport& report);
/// plan_json() with the report.
std::string report_json(const Planned& planned, const PlanReport& report);

/// Memory over the time of one micro-batch, stacked (saved, working, scratch), and below it the layers' strip.
std::string plan_svg(const Planned& planned);

}  // namespace bantam
