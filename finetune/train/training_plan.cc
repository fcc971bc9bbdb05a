// SPDX-License-Identifier: Apache-2.0
#include "training_plan.h"

#include <algorithm>

#include "../../kernels/device_scratch.h"
#include "../../kernels/error.h"
#include "executor.h"
#include "step_losses.h"

namespace bantam {

namespace {

constexpr double kNominalRate = 1e11;  // for shares of FLOPs, where seconds are not wanted

void fill_lines(const ModelGraph& model, const PlanRequest& r, TrainingPlan& plan) {
  const size_t flat = static_cast<size_t>(r.trained_parameters) * sizeof(float);
  const Program& p = plan.training.program;
  const size_t saved = p.saved_at_peak, chunk = p.scratch_at_peak;
  MemoryPlan& m = plan.memory;
  m.lines = {{"weights", r.weight_bytes, r.weights_mapped},
             {"adapters", flat},
             {"gradients", flat},
             {"optimizer state", 2 * flat},
             {"saved activations", saved},
             {"recompute working set", plan.arena() - saved - chunk},
             {"loss chunk", chunk},
             {"workspace", r.workspace_bytes + plan.device_workspace},
             {"step constants", StepBuffers::bytes(model.config, r.max_tokens) +
                                    (r.device_formats ? StepLosses::bytes(r.max_tokens) : 0)}};
  m.lines.push_back(r.device_formats ? MemoryLine{"decoded weights", plan.decoded_weight_bytes()}
                                     : MemoryLine{"program, tokenizer, data", r.program_bytes});
  m.schedule = p.schedule;
  m.limit = r.limit;
}

// The device's part of a plan that has a schedule: the workspace, and what is left for decoded weights.
void plan_device(const ModelGraph& model, const PlanRequest& r, TrainingPlan& plan) {
  if (r.device_formats) {
    const DeviceNeeds needs = combined(device_needs(model, plan.training.program, *r.device_formats, r.attention),
                                       device_needs(model, plan.evaluation, *r.device_formats, r.attention));
    plan.device_workspace = std::max(needs.workspace, device_scratch(GradNormArgs{.n = r.trained_parameters}));
    plan.decoded_slots = decoded_slots(needs, 0);
    fill_lines(model, r, plan);
    if (!plan.memory.fits()) return;
    size_t budget = r.limit.bytes == 0 ? SIZE_MAX : r.limit.bytes - plan.memory.need() + plan.decoded_weight_bytes();
    if (r.decoded_weight_bytes) budget = std::min(budget, *r.decoded_weight_bytes);
    plan.decoded_slots = decoded_slots(needs, budget);
  }
  fill_lines(model, r, plan);
}

}  // namespace

TrainingPlan plan_training(const ModelGraph& model, const PlanRequest& r, const std::function<CostModel()>& costs,
                           bool want_seconds) {
  const ProgramOptions options{
      .max_tokens = r.max_tokens, .loss_chunk_bytes = r.loss_chunk_bytes, .sequence = r.sequence, .place = r.place};
  TrainingPlan plan;
  plan.evaluation = compile(model, evaluation_schedule(model), options);
  const auto planned = [&](const Schedule& s) {
    plan.training.schedule = s;
    plan.training.program = compile(model, s, options);
    plan_device(model, r, plan);
  };
  const bool automatic = !r.schedule && r.checkpointing.mode == CheckpointMode::automatic;
  std::optional<CostModel> measured;
  if (want_seconds) measured = costs();
  if (!automatic) {
    planned(r.schedule ? *r.schedule : training_schedule(model, r.checkpointing));
  } else {
    Schedule everything = training_schedule(model, {CheckpointMode::off, {}});
    everything.name = "auto";
    planned(everything);
    if (!plan.memory.fits()) {
      if (!measured) measured = costs();
      const SchedulePlanner planner(model, *measured, options);
      const int tries = r.device_formats ? 3 : 1;  // what a device takes besides depends on the program a little
      for (int k = 0; k < tries && !plan.memory.fits(); ++k) {
        const size_t others = plan.memory.need() - plan.arena();
        const size_t budget = r.limit.bytes - std::min(r.limit.bytes, others);
        std::optional<PlannedSchedule> found;
        if (budget >= plan.evaluation.peak) found = planner.automatic(budget);
        const bool none = !found;
        plan.training = found ? std::move(*found) : planner.fixed({CheckpointMode::full, {}});
        plan.training.schedule.name = plan.training.program.schedule = "auto";
        plan_device(model, r, plan);
        if (none) break;
      }
    }
  }
  const CostModel rates = measured ? *measured : CostModel::assume(kNominalRate);
  plan.training.cost = cost_of(plan.training.program, model, rates);
  const ProgramCost& c = plan.training.cost;
  ProgramOptions unplaced = options;
  unplaced.place = false;
  const Program nothing_again = compile(model, training_schedule(model, {CheckpointMode::off, {}}), unplaced);
  plan.memory.recompute_overhead = c.total() / cost_of(nothing_again, model, rates).total() - 1;
  if (measured) {
    plan.memory.forward_seconds = c.forward;
    plan.memory.recompute_seconds = c.recompute;
    plan.memory.backward_seconds = c.backward;
  }
  return plan;
}

size_t program_bytes(size_t counted) {
  constexpr size_t kStep = size_t{4} << 20, kLeast = size_t{8} << 20;
  const size_t now = process_memory().anonymous;
  return std::max(kLeast, (now - std::min(now, counted) + kStep - 1) / kStep * kStep);
}

}  // namespace bantam
