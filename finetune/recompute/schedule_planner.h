// SPDX-License-Identifier: Apache-2.0
// gradient_checkpointing: auto. The fastest schedule whose program fits a budget of arena bytes.
#pragma once
#include <optional>

#include "cost_model.h"
#include "saved_sets.h"

namespace bantam {

struct PlannedSchedule {
  Schedule schedule;
  Program program;  ///< placed: its peak is what the arena will take
  ProgramCost cost;
};

class SchedulePlanner {
 public:
  /// `model` must outlive the planner.
  SchedulePlanner(const ModelGraph& model, const CostModel& costs, const ProgramOptions& options);

  /// The schedule of a policy other than auto.
  PlannedSchedule fixed(const CheckpointPolicy& policy) const;
  PlannedSchedule of(const Schedule& schedule) const;
  /// The fastest schedule found whose placed peak is at most `budget`: with room for all that backward reads, nothing
  /// is rebuilt. The planner's chain is a little larger than the compiled program, so budgets are tried around the
  /// limit. Empty: nothing fits.
  std::optional<PlannedSchedule> automatic(size_t budget) const;

  const ChainModel& chain() const { return chain_; }

 private:
  const ModelGraph& model_;
  CostModel costs_;
  ProgramOptions options_;
  ChainModel chain_;
};

}  // namespace bantam
