// SPDX-License-Identifier: Apache-2.0
// What a training will hold and take, from shapes alone: no weights, no device memory. The trainer is built from it;
// `bantam plan` prints it for models and machines that are not here.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "../model/model.h"
#include "../recompute/schedule_planner.h"
#include "device_needs.h"
#include "memory_plan.h"

namespace bantam {

struct PlanRequest {
  size_t weight_bytes = 0;
  bool weights_mapped = true;
  int64_t trained_parameters = 0;
  size_t workspace_bytes = 0;  ///< Context::workspace_bytes(); on a device its own
  size_t program_bytes = 0;    ///< the process beside all that: code's data, tokenizer, datasets
  int64_t max_tokens = 0;      ///< of the largest micro-batch
  int64_t sequence = 0;        ///< typical length of its sequences, for time only; 0: one sequence
  size_t loss_chunk_bytes = size_t{128} << 20;
  CheckpointPolicy checkpointing;
  std::optional<Schedule> schedule;  ///< this one, whatever `checkpointing` says
  MemoryLimit limit;                 ///< what auto solves for
  size_t host_limit = 0;             ///< bytes of host memory for offloaded inputs; 0: no limit
  bool place = true;                 ///< false: peaks are the greatest sums of live bytes, up to half a percent less
  /// Set for a backend with memory of its own: how the model's matrices are stored. Its workspace and its memory for
  /// decoded weights are then planned too.
  std::shared_ptr<const WeightFormats> device_formats;
  AttentionLibrary attention;  ///< attention_library() of that device, whose workspace counts
  /// Most bytes for decoded weights, beyond what has to be; empty: what the schedule leaves of the limit.
  std::optional<size_t> decoded_weight_bytes;
};

struct TrainingPlan {
  MemoryPlan memory;
  PlannedSchedule training;
  Program evaluation;
  size_t device_workspace = 0;        ///< bytes that ops take of a device within one call; 0 on the CPU
  size_t staging = 0;                 ///< pinned host memory of uploads, see Backend::reserve_staging; 0 on the CPU
  std::vector<size_t> decoded_slots;  ///< for Backend::reserve_decoded_weights
  size_t decoded_weight_bytes() const { return sum_of(decoded_slots); }
  size_t arena() const { return std::max(training.program.peak, evaluation.peak); }
};

/// Error(usage) for activation_offloading where the device's memory is the host's. `device`: where the run would
/// compute.
void check_offloading(bool offload_inputs, bool has_own_memory, const std::string& device);

/// What a planner may do with host memory: the request's limit less what the plan's uploads take of it.
OffloadOptions offload_options(const PlanRequest& request, const TrainingPlan& plan);

/// `costs` is asked for only where a schedule has to be solved or `want_seconds`; without it seconds are zero and the
/// overhead is one of FLOPs and bytes at nominal rates. With auto: the fastest schedule within the limit; where none
/// fits, the one that keeps each layer's input (memory.fits() is false then). On a device, what the schedule leaves of
/// the limit goes to decoded weights: it costs no recompute. Error(usage): a schedule that offloads, without a device.
TrainingPlan plan_training(const ModelGraph& model, const PlanRequest& request, const std::function<CostModel()>& costs,
                           bool want_seconds);

/// What this process holds beside the parts of a plan: `counted` bytes of those are allocated already. Rounded up to
/// 4 MiB, so that equal runs plan alike.
size_t program_bytes(size_t counted);

}  // namespace bantam
