// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "../../kernels/backend.h"
#include "../../kernels/cudnn_shapes.h"
#include "../../kernels/error.h"
#include "../../lora/peft_files.h"

namespace bantam {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

int64_t count_or_fraction(double v, int64_t total) {
  return v >= 1 ? static_cast<int64_t>(v)
                : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(v * static_cast<double>(total))));
}

void plan_epochs(const Dataset& train, const TrainOptions& o, RunPlan& plan) {
  int64_t sum = 0;
  EpochShape shape;
  for (int64_t e = 0;; ++e) {
    if (o.max_steps > 0 ? sum >= o.max_steps : static_cast<double>(e) >= o.num_epochs) break;
    if (e == 0 || !shape.every_epoch_alike) shape = epoch_shape(train.samples, o.batches, e, train.source_weights);
    int64_t n = shape.steps;
    if (n == 0) throw Error(ErrorCode::data, "the dataset has no rows to train on");
    plan.max_tokens = std::max(plan.max_tokens, shape.longest_micro_batch);
    if (e == 0) {
      plan.steps_per_epoch = n;
      plan.micro_batches = shape.micro_batches;
      plan.rows = shape.rows;
      plan.tokens_per_epoch = shape.tokens;
    }
    if (o.max_steps > 0) n = std::min(n, o.max_steps - sum);
    if (const double left = o.num_epochs - static_cast<double>(e); o.max_steps <= 0 && left < 1)
      n = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(left * static_cast<double>(n))));
    plan.epoch_steps.push_back(n);
    sum += n;
  }
  plan.total_steps = sum;
}

class Run {
 public:
  Run(Context& ctx, std::shared_ptr<const Model> model, AdapterSet& adapters, const Dataset& train, const Dataset* eval,
      const TrainOptions& options, const TrainHooks& hooks, std::stop_token stop)
      : adapters_(adapters), train_(train), eval_(eval), o_(options), hooks_(hooks), stop_(std::move(stop)) {
    plan_ = plan_run(train, eval, options);
    o_.lr.warmup_steps = options.warmup <= 0 ? 0 : count_or_fraction(options.warmup, plan_.total_steps);
    for (const auto& m : linear_modules(model->config)) linears_.push_back(m.path);
    trainer_.emplace(ctx, std::move(model), adapters, options.trainer, plan_.max_tokens);
    machine_key_ = str("backend ", ctx.backend().name, ", tier ", name_of(ctx.isa()));
    if (ctx.backend().device_info) machine_key_ += str(", ", ctx.backend().device_info(ctx.device()).name);
    if (const int v = attention_library(ctx).version) machine_key_ += str(", cuDNN ", cudnn_text(v));
    report_.first_eval_loss = report_.last_eval_loss = std::numeric_limits<double>::quiet_NaN();
    report_.planned_memory = trainer_->plan().anonymous();
    report_.offloaded_memory = trainer_->plan().offloaded_bytes;
  }

  TrainReport run() {
    if (hooks_.on_plan) hooks_.on_plan(plan_, *trainer_);
    check_fits(trainer_->plan());
    resume();
    trainer_->reserve();
    last_save_ = Clock::now();
    if (state_.step == 0) evaluate();
    bool go_on = true;
    for (; go_on && state_.epoch < static_cast<int64_t>(plan_.epoch_steps.size()); next_epoch()) {
      const EpochPlan plan = plan_epoch(train_.samples, o_.batches, state_.epoch, train_.source_weights);
      const int64_t n = plan_.epoch_steps[static_cast<size_t>(state_.epoch)];
      while (go_on && state_.step_in_epoch < n) {
        if (!step(plan)) {
          go_on = false;
          break;
        }
        go_on = after_step(state_.step_in_epoch == n);
      }
      if (!go_on) break;
    }
    finish(go_on || state_.step >= plan_.total_steps);
    return report_;
  }

 private:
  void next_epoch() {
    ++state_.epoch;
    state_.step_in_epoch = 0;
  }

  void resume() {
    state_.run_key = o_.run_key;
    state_.machine_key = machine_key_;
    state_.total_steps = plan_.total_steps;
    std::optional<RunState> found;
    if (!o_.resume_from.empty())
      found = load_checkpoint(o_.resume_from, adapters_);
    else if (!o_.output_dir.empty() && o_.resume)
      found = load_newest_checkpoint(o_.output_dir, adapters_, [&](const std::string& m) { warn(m); });
    if (!found) return;
    const std::string from = o_.resume_from.empty() ? o_.output_dir.string() : o_.resume_from.string();
    if (found->run_key != o_.run_key)
      throw Error(ErrorCode::usage, str(from, ": holds a checkpoint of another run (step ", found->step, ")"),
                  "name another output_dir, or start afresh with --overwrite");
    if (found->total_steps != plan_.total_steps && !o_.resume_with_new_total)
      throw Error(
          ErrorCode::usage,
          str(from, ": the checkpoint is of a run of ", found->total_steps, " steps, this one has ", plan_.total_steps),
          "keep num_epochs, max_steps and the data as they were, or start afresh with --overwrite");
    if (found->machine_key != machine_key_)
      warn(str("the checkpoint was made with ", found->machine_key, ", this is ", machine_key_,
               ": numbers will differ in the last digits"));
    state_ = *found;
    state_.machine_key = machine_key_;
    state_.total_steps = plan_.total_steps;
    if (state_.epoch < static_cast<int64_t>(plan_.epoch_steps.size()) &&
        state_.step_in_epoch >= plan_.epoch_steps[static_cast<size_t>(state_.epoch)])
      next_epoch();
    if (hooks_.on_resume) hooks_.on_resume(state_);
  }

  // One optimiser step; false: stopped before it was whole.
  bool step(const EpochPlan& plan) {
    if (stop_.stop_requested()) return false;
    const StepBatch batch = make_step(train_.samples, plan.step(state_.step_in_epoch));
    const auto t0 = Clock::now();
    StepEvent e;
    trainer_->begin_step();
    int64_t tokens = 0;
    for (size_t m = 0; m < batch.micro.size(); ++m) {
      trainer_->wait_for_room(stop_);
      if (hooks_.on_micro_batch) hooks_.on_micro_batch(static_cast<int64_t>(m));
      if (stop_.stop_requested()) return false;
      tokens += batch.micro[m].tokens();
      if (batch.total_weight > 0)
        trainer_->accumulate_async(batch.micro[m], 1.0 / batch.total_weight, static_cast<uint64_t>(state_.epoch));
    }
    if (state_.step == 0) {
      trainer_->fetch();
      check_every_adapter_moves();
    }
    e.lr = learning_rate(o_.lr, state_.step, plan_.total_steps);
    if (batch.total_weight > 0) {
      e.result = trainer_->update(state_.updates, e.lr);
      e.result.loss = trainer_->take_losses() / batch.total_weight;
    } else {
      e.result.skipped = true;
    }
    e.result.tokens = tokens;
    e.result.total_weight = batch.total_weight;
    count_skips(e.result);
    state_.updates += !e.result.skipped;
    ++state_.step;
    ++state_.step_in_epoch;

    e.seconds = seconds_since(t0);
    report_.train_seconds += e.seconds;
    report_.tokens += tokens;
    ++steps_here_;
    e.step = state_.step;
    e.total_steps = plan_.total_steps;
    e.epoch = static_cast<double>(state_.epoch) +
              static_cast<double>(state_.step_in_epoch) / static_cast<double>(plan.steps());
    e.tokens_per_second = static_cast<double>(tokens) / e.seconds;
    e.eta_seconds =
        report_.train_seconds / static_cast<double>(steps_here_) * static_cast<double>(plan_.total_steps - state_.step);
    e.memory_bytes = trainer_->memory_bytes();
    report_.peak_memory = std::max(report_.peak_memory, trainer_->peak_memory_bytes());
    if (hooks_.on_step && !hooks_.on_step(e)) stopped_by_hook_ = true;
    return true;
  }

  void count_skips(const StepResult& r) {
    if (!r.skipped) {
      skipped_in_a_row_ = 0;
      return;
    }
    ++report_.skipped_steps;
    const char* why = r.total_weight > 0 ? "the gradient is not finite" : "it has no trained token";
    warn(str("step ", state_.step + 1, " skipped: ", why));
    if (++skipped_in_a_row_ >= 10 && r.total_weight > 0)
      throw Error(ErrorCode::numeric,
                  str("step ", state_.step + 1, ": the gradient was not finite ", skipped_in_a_row_, " times in a row"),
                  "lower learning_rate; try dtype: f32");
  }

  // In the first step lora_B is zero, so its gradient is the one to look at. None at all means a broken chain.
  void check_every_adapter_moves() {
    for (const auto& a : adapters_.adapters()) {
      const auto zero = [&](int p) {
        const Parameter& q = adapters_.parameters()[static_cast<size_t>(p)];
        const auto g = adapters_.grads().subspan(static_cast<size_t>(q.offset), static_cast<size_t>(q.size()));
        return std::all_of(g.begin(), g.end(), [](float x) { return x == 0; });
      };
      if (zero(a.a) && zero(a.b)) {
        warn(str(a.module, ": its adapter got no gradient in the first step"));
        return;
      }
    }
  }

  bool due(double every, bool epoch_end) const {
    if (every <= 0) return epoch_end;
    return state_.step % count_or_fraction(every, plan_.total_steps) == 0;
  }

  // Evaluation and checkpoints; false: stop.
  bool after_step(bool epoch_end) {
    const bool last = state_.step >= plan_.total_steps;
    if (last || due(o_.eval_steps, epoch_end)) evaluate();
    const bool late = o_.save_minutes > 0 && seconds_since(last_save_) > o_.save_minutes * 60;
    if (last || late || due(o_.save_steps, epoch_end)) save();
    return !stopped_by_hook_ && !stop_.stop_requested();
  }

  void evaluate() {
    if (!eval_ || eval_->samples.empty()) return;
    EvalEvent e;
    double sum = 0;
    const EpochPlan plan = plan_in_order(eval_->samples, o_.batches);
    for (int64_t i = 0; i < plan.steps(); ++i)
      for (const auto& micro : plan.step(i)) {
        const EvalResult r = trainer_->evaluate(make_batch(eval_->samples, micro));
        sum += r.loss * static_cast<double>(r.targets);
        e.result.targets += r.targets;
      }
    e.step = state_.step;
    e.total_steps = plan_.total_steps;
    e.result.loss = e.result.targets > 0 ? sum / static_cast<double>(e.result.targets) : 0;
    if (state_.step == 0) report_.first_eval_loss = e.result.loss;
    report_.last_eval_loss = e.result.loss;
    if (hooks_.on_eval) hooks_.on_eval(e);
  }

  void save() {
    if (o_.output_dir.empty() || saved_step_ == state_.step) return;
    trainer_->fetch();
    const auto path = save_checkpoint(o_.output_dir, adapters_, state_, linears_, o_.base_model_name);
    rotate_checkpoints(o_.output_dir, o_.save_total_limit);
    saved_step_ = state_.step;
    last_save_ = Clock::now();
    if (hooks_.on_save) hooks_.on_save(path, state_);
  }

  void finish(bool finished) {
    trainer_->fetch();
    report_.finished = finished;
    if (!finished) save();
    if (finished && !o_.output_dir.empty()) save_adapter(o_.output_dir, adapters_, linears_, {o_.base_model_name});
    report_.state = state_;
    report_.planned_overhead = trainer_->plan().recompute_overhead - trainer_->plan().offload_overhead;
    report_.measured_overhead = trainer_->times().overhead();
  }

  void warn(const std::string& m) const {
    if (hooks_.warn) hooks_.warn(m);
  }

  AdapterSet& adapters_;
  const Dataset& train_;
  const Dataset* eval_;
  TrainOptions o_;
  const TrainHooks& hooks_;
  std::stop_token stop_;
  RunPlan plan_;
  std::vector<std::string> linears_;
  std::optional<Trainer> trainer_;
  std::string machine_key_;
  RunState state_;
  TrainReport report_;
  Clock::time_point last_save_;
  int64_t saved_step_ = 0, steps_here_ = 0, skipped_in_a_row_ = 0;
  bool stopped_by_hook_ = false;
};

}  // namespace

RunPlan plan_run(const Dataset& train, const Dataset* eval, const TrainOptions& o) {
  RunPlan p;
  plan_epochs(train, o, p);
  p.rows_per_step = static_cast<double>(p.rows) / static_cast<double>(p.steps_per_epoch);
  if (eval && !eval->samples.empty())
    p.max_tokens = std::max(p.max_tokens, plan_in_order(eval->samples, o.batches).longest_micro_batch);
  return p;
}

TrainReport train(Context& ctx, std::shared_ptr<const Model> model, AdapterSet& adapters, const Dataset& train_data,
                  const Dataset* eval_data, const TrainOptions& options, const TrainHooks& hooks,
                  std::stop_token stop) {
  return Run(ctx, std::move(model), adapters, train_data, eval_data, options, hooks, std::move(stop)).run();
}

}  // namespace bantam
