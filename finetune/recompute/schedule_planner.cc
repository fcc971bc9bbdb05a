// SPDX-License-Identifier: Apache-2.0
#include "schedule_planner.h"

#include <algorithm>

#include "chain_planner.h"

namespace bantam {

SchedulePlanner::SchedulePlanner(const ModelGraph& model, const CostModel& costs, const ProgramOptions& options)
    : model_(model), costs_(costs), options_(options), chain_(chain_of(model, costs, options)) {}

PlannedSchedule SchedulePlanner::of(const Schedule& schedule) const {
  PlannedSchedule p{.schedule = schedule, .program = compile(model_, schedule, options_), .cost = {}};
  p.cost = cost_of(p.program, model_, costs_);
  return p;
}

PlannedSchedule SchedulePlanner::fixed(const CheckpointPolicy& policy) const {
  return of(training_schedule(model_, policy));
}

std::optional<PlannedSchedule> SchedulePlanner::automatic(size_t budget) const {
  std::optional<PlannedSchedule> best;
  const auto consider = [&](PlannedSchedule p) {
    p.schedule.name = p.program.schedule = "auto";
    const size_t peak = p.program.peak;
    if (peak <= budget && (!best || p.cost.total() < best->cost.total())) best = std::move(p);
    return peak;
  };
  if (consider(fixed({CheckpointMode::off, {}})) <= budget) return best;
  consider(fixed({CheckpointMode::selective, {}}));
  // What the chain counts and what the program takes differ by in-place ops and by placement: a few corrections.
  size_t chain_budget = budget;
  const ChainPlanner planner(chain_.chain, budget + budget / 8);
  size_t low = 0, high = budget + budget / 8;  // known to fit, known not to (of the chain's budget)
  for (int round = 0; round < 8; ++round) {
    const auto plan = planner.plan(chain_budget);
    if (!plan) {
      low = std::max(low, chain_budget);
    } else {
      const size_t peak = consider(of(schedule_of(model_, chain_, plan->ops, "auto")));
      if (peak <= budget) {
        low = std::max(low, chain_budget);
        if (budget - peak < budget / 200) break;
      } else {
        high = std::min(high, chain_budget);
      }
      const size_t next = peak <= budget ? chain_budget + (budget - peak) : chain_budget - std::min(chain_budget, peak - budget);
      chain_budget = next > low && next < high ? next : low + (high - low) / 2;
      if (high - low < budget / 400) break;
      continue;
    }
    chain_budget = low + (high - low) / 2;
    if (high - low < budget / 400) break;
  }
  return best;
}

}  // namespace bantam
