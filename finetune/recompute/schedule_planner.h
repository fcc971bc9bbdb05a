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

/// activation_offloading, for auto.
struct OffloadOptions {
  bool inputs = false;    ///< inputs of layers may lie in host memory
  size_t host_bytes = 0;  ///< of it; 0: no limit
};

class SchedulePlanner {
 public:
  /// `model` must outlive the planner.
  SchedulePlanner(const ModelGraph& model, const CostModel& costs, const ProgramOptions& options,
                  const OffloadOptions& offload = {});

  /// The schedule of a policy other than auto.
  PlannedSchedule fixed(const CheckpointPolicy& policy) const;
  PlannedSchedule of(const Schedule& schedule) const;
  /// The fastest schedule found whose placed peak is at most `budget`: with room for all that backward reads, nothing
  /// is rebuilt. The planner's chain is a little larger than the compiled program, so budgets are tried around the
  /// limit. Inputs lie in host memory only where that is faster than every schedule found without. Empty: nothing fits.
  std::optional<PlannedSchedule> automatic(size_t budget) const;

  const ChainModel& chain() const { return chain_; }
  /// With inputs that may lie in host memory; without OffloadOptions the same as chain().
  const ChainModel& offload_chain() const { return offload_chain_; }

 private:
  const ModelGraph& model_;
  CostModel costs_;
  ProgramOptions options_;
  OffloadOptions offload_;
  ChainModel chain_, offload_chain_;
};

}  // namespace bantam
