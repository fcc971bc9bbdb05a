// SPDX-License-Identifier: Apache-2.0
// The step level of training: plan, reserve, then train_step / evaluate. The loop around it is run.h.
#pragma once
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "../../kernels/arena.h"
#include "../model/model.h"
#include "../recompute/program.h"
#include "comm.h"
#include "executor.h"
#include "lr_schedule.h"
#include "step_losses.h"
#include "training_plan.h"

namespace bantam {

struct AdamwOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double max_grad_norm = 1.0;  ///< 0: no clipping
};

struct TrainerOptions {
  DType dtype = DType::bf16;  ///< of activations; bf16 or f32
  CheckpointPolicy checkpointing;
  size_t loss_chunk_bytes = size_t{128} << 20;
  AdamwOptions optimizer;
  uint64_t seed = 42;                ///< of the dropout masks
  std::optional<MemoryLimit> limit;  ///< empty: memory_limit(0, 512 MiB), what is free
  std::optional<size_t> host_limit;  ///< see PlanRequest; empty: what is free less 512 MiB
  size_t program_bytes = 0;          ///< see PlanRequest; 0: measured
  std::optional<Schedule> schedule;  ///< run this one, whatever `checkpointing` says (a resumed run's plan)
  std::optional<CostModel> costs;    ///< of this machine; empty: measured when a schedule has to be solved for
  bool poison_dead = false;          ///< see RunOptions
  std::optional<size_t> decoded_weight_bytes;  ///< see PlanRequest
};

struct StepResult {
  double loss = 0;       ///< sum of the trained tokens' losses over the step's weight
  double grad_norm = 0;  ///< before clipping
  int64_t tokens = 0;
  double total_weight = 0;
  bool skipped = false;  ///< gradient not finite, or no trained token: nothing was updated
};

struct EvalResult {
  double loss = 0;  ///< mean over trained tokens
  int64_t targets = 0;
};

class Trainer {
 public:
  /// Plans for micro-batches of up to max_tokens tokens; allocates nothing that grows with them. A plan that does not
  /// fit is no error here: plan().fits() says it, reserve() refuses it. `adapters` must outlive the trainer and fit the
  /// model. Error(usage) / Error(model) when options and model contradict each other.
  Trainer(Context& ctx, std::shared_ptr<const Model> model, AdapterSet& adapters, const TrainerOptions& options,
          int64_t max_tokens);

  const MemoryPlan& plan() const { return plan_.memory; }
  const TrainingPlan& training_plan() const { return plan_; }
  const Program& program() const { return plan_.training.program; }
  const ModelGraph& graph() const { return graph_; }
  AdapterSet& adapters() { return adapters_; }
  int64_t max_tokens() const { return max_tokens_; }

  /// Reserves and touches all memory of the plan; the first step does it otherwise. Error(does_not_fit).
  void reserve();

  /// Zeroes the gradients and forgets losses that nobody took.
  void begin_step();
  /// Adds the gradients of one micro-batch to the adapter set; row weights are times weight_scale. Returns the weighted
  /// sum of its losses (not scaled). The unit of work between two looks at a stop request.
  double accumulate(const Batch& batch, double weight_scale, uint64_t epoch);
  /// The same without waiting for the device: the losses are left for take_losses().
  void accumulate_async(const Batch& batch, double weight_scale, uint64_t epoch);
  /// Whether the device has yet to finish the micro-batch before the last: another one would only lengthen what a stop
  /// request waits for. False on the CPU.
  bool behind() const;
  /// Returns when it is not, or a stop is requested. The device stays busy, with up to one micro-batch; the host asks
  /// and sleeps, and synchronises nothing.
  void wait_for_room(const std::stop_token& stop) const;
  /// Sum over the micro-batches of accumulate_async() since begin_step() of what accumulate() returns.
  double take_losses();
  /// Clips and updates with the gradients accumulated since begin_step(). `step` counts from 0. Waits for the device
  /// once, at the end, to read the norm.
  StepResult update(int64_t step, double lr);
  /// begin_step, accumulate each micro-batch, update. Waits for the device at the end only.
  StepResult train_step(const StepBatch& batch, int64_t step, double lr, uint64_t epoch);

  /// Loss without dropout and without gradients. `per_token`, when given, receives the losses of all rows.
  EvalResult evaluate(const Batch& batch, std::vector<float>* per_token = nullptr);

  /// What the process holds of the memory that the plan counts: anonymous memory on the CPU, else the device's.
  size_t memory_bytes() const;
  /// The most of it so far; on the CPU what it is now.
  size_t peak_memory_bytes() const;

  /// Of all training micro-batches up to the last update.
  const RunTimes& times() const { return times_; }
  /// Brings the adapters' values, gradients and moments from the device to the host's spans; nothing to do on the CPU.
  void fetch() { adapters_.fetch(); }
  void set_comm(const Comm& comm) { comm_ = comm; }
  /// For benchmarks.
  void set_profile(std::function<void(const Instr&, const Op&, double)> f) { profile_ = std::move(f); }

 private:
  void run(const Batch& batch, double weight_scale, uint64_t epoch);
  int64_t given_ = 0;  ///< micro-batches since begin_step(), each with a mark behind it
  Context& ctx_;
  std::shared_ptr<const Model> model_;
  AdapterSet& adapters_;
  TrainerOptions options_;
  int64_t max_tokens_;
  ModelGraph graph_;
  TrainingPlan plan_;
  PinnedBuffer host_;  // of offloaded inputs
  std::optional<Arena> arena_;
  std::optional<StepBuffers> buffers_;
  std::optional<Executor> executor_;
  std::optional<StepLosses> losses_;
  DeviceBuffer update_;  // an UpdateMemory
  Comm comm_;
  RunTimes times_;
  std::function<void(const Instr&, const Op&, double)> profile_;
};

}  // namespace bantam
