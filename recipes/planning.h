// SPDX-License-Identifier: Apache-2.0
// The plan of a session: what is decided before any weight is read, and how it is told.
#pragma once
#include <optional>
#include <string>

#include "../finetune/train/fit.h"
#include "session.h"

namespace bantam {

struct PlanningOptions {
  int64_t assume_memory = 0;  ///< bytes of the machine that is planned for; 0: this one's
  double assume_rate = 0;     ///< FLOP/s; 0: measured here
  std::string earlier;        ///< plan.json of the run that may be resumed; empty: none
  bool shape_only = false;    ///< no data: micro-batches are as large as they may be
};

struct Planned {
  ModelGraph graph;  ///< without buffers
  RunPlan run;
  PlanRequest request;
  BatchShape shape;
  TrainingPlan plan;
  CostModel costs;
  std::string planned_with;        ///< the settings that decided the schedule
  bool reused = false;             ///< schedule and micro-batch are those of `earlier`
  std::vector<std::string> notes;  ///< what was chosen or adjusted
};

/// Decides micro_batch_size: auto, on_does_not_fit: adjust, and the schedule; sets session.options accordingly. A plan
/// that does not fit is returned as it is (plan.memory.fits() is false).
Planned make_plan(Session& session, const Recipe& recipe, const PlanningOptions& options);

/// Error(does_not_fit) with the smallest changes that would make it fit, unless it fits.
void require_fit(const Planned& planned);

/// Bytes of arena at `percent` of the way from one schedule to a larger one.
size_t budget_between(const PlannedSchedule& least, const PlannedSchedule& most, int percent);

/// Rows, packs, steps; memory line by line; the schedule and its cost in time.
std::string plan_text(const Planned& planned);
/// The same for machines, with the schedule: plan.json.
std::string plan_json(const Planned& planned);

}  // namespace bantam
