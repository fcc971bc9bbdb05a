// SPDX-License-Identifier: Apache-2.0
// A whole fine-tuning run: epochs, evaluation, checkpoints, resume, stopping.
#pragma once
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "../data/batch.h"
#include "run_state.h"
#include "trainer.h"

namespace bantam {

struct TrainOptions {
  TrainerOptions trainer;
  BatchOptions batches;
  LrOptions lr;              ///< lr.warmup_steps is set from `warmup` below
  double warmup = 0.03;      ///< steps, or a fraction of all steps when below 1
  double num_epochs = 3;     ///< a fraction ends within an epoch
  int64_t max_steps = 0;     ///< > 0: overrides num_epochs
  double eval_steps = 0;     ///< 0: at the end of each epoch; < 1: a fraction of all steps; also at step 0 and the end
  double save_steps = 0;     ///< the same, for checkpoints
  double save_minutes = 15;  ///< and after this long since the last; 0: never
  int64_t save_total_limit = 2;
  std::filesystem::path output_dir;  ///< empty: nothing is written
  std::string base_model_name;       ///< for adapter_config.json
  std::string run_key;               ///< what changes results; a checkpoint with another key is refused
  bool resume = true;                ///< go on from the newest checkpoint in output_dir, where there is one
  bool resume_with_new_total =
      false;  ///< go on although the number of steps in all is another: the LR follows the new one
  std::filesystem::path resume_from;  ///< go on from this checkpoint folder instead; empty: as `resume` says
};

/// The shape of the run, known before step 1.
struct RunPlan {
  int64_t rows = 0, micro_batches = 0, steps_per_epoch = 0, total_steps = 0;  ///< of the first epoch; steps in all
  double rows_per_step = 0;
  int64_t max_tokens = 0;  ///< of the longest micro-batch, evaluation included
  int64_t tokens_per_epoch = 0;
  std::vector<int64_t> epoch_steps;  ///< of each epoch of the run; the last may be cut short
};
RunPlan plan_run(const Dataset& train, const Dataset* eval, const TrainOptions& options);

struct StepEvent {
  int64_t step = 0, total_steps = 0;  ///< step counts from 1
  double epoch = 0;
  StepResult result;
  double lr = 0, seconds = 0, tokens_per_second = 0, eta_seconds = 0;
  size_t memory_bytes = 0;  ///< as Trainer::memory_bytes(), after the step
};
struct EvalEvent {
  int64_t step = 0, total_steps = 0;
  EvalResult result;
};

/// All optional. Called on the training thread; may throw to end the run.
struct TrainHooks {
  /// Before memory is reserved, and before a plan that does not fit is refused.
  std::function<void(const RunPlan&, const Trainer&)> on_plan;
  std::function<void(const RunState&)> on_resume;
  /// Before each micro-batch of a step, counted from 0, where a stop request is looked at.
  std::function<void(int64_t micro_batch)> on_micro_batch;
  std::function<bool(const StepEvent&)> on_step;  ///< false: stop after this step
  std::function<void(const EvalEvent&)> on_eval;
  std::function<void(const std::filesystem::path&, const RunState&)> on_save;
  std::function<void(const std::string&)> warn;
};

struct TrainReport {
  RunState state;
  bool finished = false;                           ///< false: stopped, resumable
  double first_eval_loss = 0, last_eval_loss = 0;  ///< NaN without evaluation
  double train_seconds = 0;                        ///< spent in steps by this process
  int64_t tokens = 0, skipped_steps = 0;
  double planned_overhead = 0, measured_overhead = 0;  ///< of recompute, over a step without
  size_t planned_memory = 0;                           ///< the plan's lines without mapped files
  size_t offloaded_memory = 0;                         ///< pinned, of offloaded layer inputs; planned and taken
  size_t peak_memory = 0;  ///< the greatest Trainer::memory_bytes() after a step; on a device the greatest ever
};

/// Runs to the end or until `stop` is requested (looked at after each micro-batch: the unfinished step is given up and
/// the last whole step saved; a device has up to two micro-batches left to finish). At the end the adapter is in
/// output_dir. Error(usage): a checkpoint of another run is there.
TrainReport train(Context& ctx, std::shared_ptr<const Model> model, AdapterSet& adapters, const Dataset& train_data,
                  const Dataset* eval_data, const TrainOptions& options, const TrainHooks& hooks = {},
                  std::stop_token stop = {});

}  // namespace bantam
