// SPDX-License-Identifier: Apache-2.0
#include "schedule_planner.h"

#include <algorithm>

#include "chain_planner.h"

namespace bantam {

SchedulePlanner::SchedulePlanner(const ModelGraph& model, const CostModel& costs, const ProgramOptions& options,
                                 const OffloadOptions& offload)
    : model_(model),
      costs_(costs),
      options_(options),
      offload_(offload),
      chain_(chain_of(model, costs, options)),
      offload_chain_(chain_) {
  if (offload.inputs) allow_offload(offload_chain_, model, costs, offload.host_bytes);
}

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
    const bool host_fits = offload_.host_bytes == 0 || p.program.host_peak <= offload_.host_bytes;
    if (peak <= budget && host_fits && (!best || p.cost.total() < best->cost.total())) best = std::move(p);
    return peak;
  };
  if (consider(fixed({CheckpointMode::off, {}})) <= budget) return best;
  consider(fixed({CheckpointMode::selective, {}}));
  // What the chain counts and what the program takes differ by in-place ops (less) and by placement (up to half a
  // percent more): a few corrections. Every plan fills its budget again, so what is taken off for placement doubles
  // each time.
  const size_t most = budget + budget / 8;
  const auto search = [&](const ChainModel& chain) {
    const ChainPlanner planner(chain.chain, most);
    size_t low = 0, high = most + 1;  // chain budgets: fits or has no plan; does not fit
    size_t chain_budget = budget, margin = budget / 2000;
    for (int round = 0; round < 12 && high - low > budget / 1000; ++round) {
      size_t next = low + (high - low) / 2;
      const auto plan = planner.plan(chain_budget);
      if (!plan) {
        low = chain_budget;
        next = low + (high - low) / 2;
      } else {
        const size_t peak = consider(of(schedule_of(model_, chain, plan->ops, "auto")));
        if (peak <= budget) {
          if (budget - peak < budget / 200) break;
          low = chain_budget;
          next = chain_budget + (budget - peak);
        } else {
          high = chain_budget;
          next = chain_budget - std::min(chain_budget, peak - budget + margin);
          margin *= 2;
        }
      }
      chain_budget = next > low && next < high ? next : low + (high - low) / 2;
    }
  };
  search(chain_);
  if (offload_.inputs) {
    consider(fixed({CheckpointMode::full, {}}));  // also where the host has no room
    consider(fixed({.mode = CheckpointMode::full, .offload_inputs = true}));
    search(offload_chain_);
  }
  return best;
}

}  // namespace bantam
