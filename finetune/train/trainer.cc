// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <cmath>

#include "../../kernels/adamw.h"
#include "../../kernels/error.h"
#include "../../kernels/grad_norm.h"
#include "calibrate.h"

namespace bantam {

namespace {
constexpr const char* kActivations = "activations";
}

Trainer::Trainer(Context& ctx, std::shared_ptr<const Model> model, AdapterSet& adapters, const TrainerOptions& options,
                 int64_t max_tokens)
    : ctx_(ctx),
      model_(std::move(model)),
      adapters_(adapters),
      options_(options),
      max_tokens_(max_tokens),
      graph_(build_model_graph(model_->config, options.dtype, &adapters)) {
  if (adapters.size() == 0) throw Error(ErrorCode::usage, "nothing to train: no module has an adapter");
  const size_t flat = static_cast<size_t>(adapters.size()) * sizeof(float);
  const bool host = ctx.backend().host_memory, mapped = host && model_->store->mapped();
  PlanRequest r{.weight_bytes = host ? model_->store->bytes() : model_->store->device_bytes(),
                .weights_mapped = mapped,
                .trained_parameters = adapters.size(),
                .workspace_bytes = host ? ctx.workspace_bytes() : 0,
                .program_bytes = options.program_bytes,
                .max_tokens = max_tokens,
                .loss_chunk_bytes = options.loss_chunk_bytes,
                .checkpointing = options.checkpointing,
                .schedule = options.schedule,
                .limit = options.limit ? *options.limit : memory_limit(ctx, 0, size_t{512} << 20)};
  r.decoded_weight_bytes = options.decoded_weight_bytes;
  if (!host) r.device_formats = std::make_shared<WeightFormats>(model_->store->formats());
  if (r.program_bytes == 0 && host)
    r.program_bytes = program_bytes(4 * flat + ctx.workspace_bytes() + (mapped ? 0 : model_->store->bytes()));
  const auto costs = [&] {
    return options_.costs ? *options_.costs
                          : calibrate(ctx, {model_->config, options.dtype, adapters.config(), max_tokens,
                                            options.loss_chunk_bytes});
  };
  plan_ = plan_training(graph_, r, costs, options.costs.has_value());
}

size_t Trainer::memory_bytes() const {
  if (!ctx_.backend().memory_use) return process_memory().anonymous;
  size_t now = 0, most = 0;
  ctx_.backend().memory_use(&now, &most);
  return now;
}

size_t Trainer::peak_memory_bytes() const {
  if (!ctx_.backend().memory_use) return process_memory().anonymous;
  size_t now = 0, most = 0;
  ctx_.backend().memory_use(&now, &most);
  return most;
}

void Trainer::reserve() {
  if (arena_) return;
  check_fits(plan_.memory);
  const size_t bytes = plan_.arena();
  arena_.emplace(ctx_.backend(), std::vector<Arena::Region>{{kActivations, bytes}});
  buffers_.emplace(ctx_.backend(), model_->config, max_tokens_);
  adapters_.move_to(ctx_.backend());
  executor_.emplace(ctx_, graph_, model_->store->on(ctx_.backend()), arena_->region(kActivations), bytes);
  executor_->reserve(plan_.device_workspace, plan_.decoded_slots);
}

namespace {
// Row order, in f64: the sum does not depend on chunks, threads or schedule.
double weighted_sum(std::span<const float> losses, const Batch& batch) {
  double sum = 0;
  for (size_t t = 0; t < losses.size(); ++t)
    sum += static_cast<double>(batch.weights[t]) * static_cast<double>(losses[t]);
  return sum;
}
}  // namespace

double Trainer::accumulate(const Batch& batch, double weight_scale, uint64_t epoch) {
  reserve();
  const StepInputs& in = buffers_->fill(batch, weight_scale, options_.seed, epoch, true);
  executor_->run(plan_.training.program, in,
                 {.adapters = &adapters_, .poison_dead = options_.poison_dead, .profile = profile_});
  times_.add(executor_->times());
  return weighted_sum(executor_->losses(plan_.training.program, batch.tokens()), batch);
}

StepResult Trainer::update(int64_t step, double lr) {
  StepResult r;
  if (ctx_.backend().host_memory) comm_.sum(adapters_.grads());
  double squares = 0;
  grad_norm(ctx_, {.grad = adapters_.op_grads(), .n = adapters_.size(), .sum_of_squares = &squares});
  r.grad_norm = std::sqrt(squares);
  if (!std::isfinite(r.grad_norm)) {
    r.skipped = true;
    return r;
  }
  const AdamwOptions& o = options_.optimizer;
  const double scale = o.max_grad_norm > 0 && r.grad_norm > o.max_grad_norm ? o.max_grad_norm / r.grad_norm : 1.0;
  adamw(ctx_, {.param = adapters_.op_values(),
               .grad = adapters_.op_grads(),
               .m = adapters_.op_exp_avg(),
               .v = adapters_.op_exp_avg_sq(),
               .n = adapters_.size(),
               .step = step + 1,
               .lr = lr,
               .beta1 = o.beta1,
               .beta2 = o.beta2,
               .eps = o.epsilon,
               .weight_decay = o.weight_decay,
               .grad_scale = static_cast<float>(scale)});
  return r;
}

StepResult Trainer::train_step(const StepBatch& batch, int64_t step, double lr, uint64_t epoch) {
  adapters_.zero_grads();
  double loss = 0;
  int64_t tokens = 0;
  for (const Batch& b : batch.micro) {
    tokens += b.tokens();
    if (batch.total_weight > 0) loss += accumulate(b, 1.0 / batch.total_weight, epoch);
  }
  StepResult r;
  if (batch.total_weight > 0) {
    r = update(step, lr);
    r.loss = loss / batch.total_weight;
  } else {
    r.skipped = true;
  }
  r.tokens = tokens;
  r.total_weight = batch.total_weight;
  return r;
}

EvalResult Trainer::evaluate(const Batch& batch, std::vector<float>* per_token) {
  reserve();
  const StepInputs& in = buffers_->fill(batch, 1.0, options_.seed, 0, false);
  executor_->run(plan_.evaluation, in, {.adapters = &adapters_, .poison_dead = options_.poison_dead});
  const auto losses = executor_->losses(plan_.evaluation, batch.tokens());
  if (per_token) per_token->assign(losses.begin(), losses.end());
  EvalResult r;
  for (const float w : batch.weights) r.targets += w > 0;
  const double weight = batch.total_weight();
  r.loss = weight > 0 ? weighted_sum(losses, batch) / weight : 0;
  return r;
}

}  // namespace bantam
