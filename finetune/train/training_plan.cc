// SPDX-License-Identifier: Apache-2.0
#include "training_plan.h"

#include <algorithm>
#include <set>

#include "../../kernels/adamw.h"
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
  if (r.device_formats) m.lines.push_back({.name = "upload staging", .bytes = plan.staging, .host = true});
  if (!p.host.empty())
    m.lines.push_back({.name = "offloaded layer inputs", .bytes = p.host_peak, .mapped = false, .host = true});
  std::set<int> offloaded;
  for (const Action& a : plan.training.schedule.actions)
    if (a.offload_input) offloaded.insert(a.stage);
  m.offloaded_inputs = static_cast<int>(offloaded.size());
  m.offloaded_bytes = p.host_peak;
  m.schedule = p.schedule;
  m.limit = r.limit;
  m.host_limit = r.host_limit;
}

// The device's part of a plan that has a schedule: the workspace, and what is left for decoded weights.
void plan_device(const ModelGraph& model, const PlanRequest& r, TrainingPlan& plan) {
  if (r.device_formats) {
    const DeviceNeeds needs = combined(device_needs(model, plan.training.program, *r.device_formats, r.attention),
                                       device_needs(model, plan.evaluation, *r.device_formats, r.attention));
    plan.device_workspace = std::max(needs.workspace, device_scratch(GradNormArgs{.n = r.trained_parameters}));
    plan.staging = staging_bytes(std::max(needs.upload, sizeof(AdamwScalars)));
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

void check_offloading(bool offload_inputs, bool has_own_memory, const std::string& device) {
  if (offload_inputs && !has_own_memory)
    throw Error(ErrorCode::usage,
                str("activation_offloading: found true, but device ", device, " computes in host memory itself"),
                "leave it out, or use device: cuda");
}

OffloadOptions offload_options(const PlanRequest& r, const TrainingPlan& plan) {
  const size_t room = r.host_limit == 0 ? 0 : std::max<size_t>(1, r.host_limit - std::min(r.host_limit, plan.staging));
  return {r.checkpointing.offload_inputs, room};
}

TrainingPlan plan_training(const ModelGraph& model, const PlanRequest& r, const std::function<CostModel()>& costs,
                           bool want_seconds) {
  const ProgramOptions options{
      .max_tokens = r.max_tokens, .loss_chunk_bytes = r.loss_chunk_bytes, .sequence = r.sequence, .place = r.place};
  check_offloading(r.checkpointing.offload_inputs || (r.schedule && offloaded_inputs(*r.schedule) > 0),
                   r.device_formats != nullptr, "cpu");
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
      const SchedulePlanner planner(model, *measured, options, offload_options(r, plan));
      const int tries = r.device_formats ? 3 : 1;  // what a device takes besides depends on the program a little
      for (int k = 0; k < tries && !plan.memory.fits(); ++k) {
        const size_t others = plan.memory.need() - plan.arena();
        const size_t budget = r.limit.bytes - std::min(r.limit.bytes, others);
        std::optional<PlannedSchedule> found;
        if (budget >= plan.evaluation.peak) found = planner.automatic(budget);
        const bool none = !found;
        const CheckpointPolicy least{.mode = CheckpointMode::full, .offload_inputs = r.checkpointing.offload_inputs};
        plan.training = found ? std::move(*found) : planner.fixed(least);
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
  const double least = cost_of(nothing_again, model, rates).total();
  plan.memory.recompute_overhead = c.total() / least - 1;
  plan.memory.offload_overhead = c.offload / least;
  if (measured) {
    plan.memory.offload_seconds = c.offload;
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
