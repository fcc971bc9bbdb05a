// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "../../kernels/adamw.h"
#include "../../kernels/error.h"
#include "../../kernels/grad_norm.h"
#include "calibrate.h"

namespace bantam {

namespace {
constexpr const char* kActivations = "activations";

// What an update reads and writes beside the adapters, in the backend's memory.
struct UpdateMemory {
  double sum_of_squares;
  AdamwScalars scalars;
};
}  // namespace

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
  r.host_limit = options.host_limit ? *options.host_limit : host_room(size_t{512} << 20);
  if (!host) r.device_formats = std::make_shared<WeightFormats>(model_->store->formats());
  r.attention = attention_library(ctx);
  if (r.program_bytes == 0 && host)
    r.program_bytes = program_bytes(4 * flat + ctx.workspace_bytes() + (mapped ? 0 : model_->store->bytes()));
  const auto costs = [&] {
    return options_.costs ? *options_.costs
                          : calibrate(ctx, {model_->config, options.dtype, adapters.config(), max_tokens,
                                            options.loss_chunk_bytes});
  };
  plan_ = plan_training(graph_, r, costs, options.costs.has_value());
}

namespace {
MemoryUse memory_use(const Context& ctx) {
  if (ctx.backend().memory_use) return ctx.backend().memory_use();
  const size_t now = process_memory().anonymous;
  return {.now = now, .most = now};
}
}  // namespace

size_t Trainer::memory_bytes() const {
  return memory_use(ctx_).now;
}

size_t Trainer::peak_memory_bytes() const {
  return memory_use(ctx_).most;
}

void Trainer::reserve() {
  if (arena_) return;
  check_fits(plan_.memory);
  const size_t bytes = plan_.arena();
  arena_.emplace(ctx_.backend(), std::vector<Arena::Region>{{kActivations, bytes}});
  buffers_.emplace(ctx_.backend(), model_->config, max_tokens_);
  adapters_.move_to(ctx_.backend());
  executor_.emplace(ctx_, graph_, model_->store->on(ctx_.backend()), arena_->region(kActivations), bytes);
  host_ = PinnedBuffer(ctx_.backend(), plan_.training.program.host_peak, "offloaded layer inputs");
  executor_->reserve(plan_.device_workspace, plan_.staging, plan_.decoded_slots);
  executor_->use_host_memory(host_.data(), host_.bytes());
  losses_.emplace(ctx_, max_tokens_);
  update_ = DeviceBuffer(ctx_.backend(), sizeof(UpdateMemory), "the optimiser's scalars");
}

void Trainer::begin_step() {
  adapters_.zero_grads();
  if (losses_) losses_->clear();
  given_ = 0;
}

void Trainer::run(const Batch& batch, double weight_scale, uint64_t epoch) {
  reserve();
  const StepInputs& in = buffers_->fill(batch, weight_scale, options_.seed, epoch, true);
  executor_->run(plan_.training.program, in,
                 {.adapters = &adapters_, .poison_dead = options_.poison_dead, .timed = true, .profile = profile_});
}

double Trainer::accumulate(const Batch& batch, double weight_scale, uint64_t epoch) {
  run(batch, weight_scale, epoch);
  return StepLosses::weighted_sum(executor_->losses(plan_.training.program, batch.tokens()), batch.weights);
}

void Trainer::accumulate_async(const Batch& batch, double weight_scale, uint64_t epoch) {
  run(batch, weight_scale, epoch);
  const Program& p = plan_.training.program;
  losses_->add(static_cast<const float*>(executor_->data(p, p.loss)), batch.weights);
  if (ctx_.backend().mark) ctx_.backend().mark(kMarkMicroBatch + static_cast<int>(given_++ % 2));
}

// The slot that the next one will take has the mark of the one before the last.
bool Trainer::behind() const {
  return given_ >= 2 && !ctx_.backend().reached(kMarkMicroBatch + static_cast<int>(given_ % 2));
}

void Trainer::wait_for_room(const std::stop_token& stop) const {
  constexpr int kYields = 64;
  for (int k = 0; !stop.stop_requested() && behind(); ++k) {
    if (k < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

double Trainer::take_losses() {
  return losses_ ? losses_->take() : 0;
}

StepResult Trainer::update(int64_t step, double lr) {
  reserve();
  const Backend& backend = ctx_.backend();
  if (backend.host_memory) comm_.sum(adapters_.grads());
  const AdamwOptions& o = options_.optimizer;
  const AdamwScalars scalars = adamw_scalars({.step = step + 1,
                                              .lr = lr,
                                              .beta1 = o.beta1,
                                              .beta2 = o.beta2,
                                              .eps = o.epsilon,
                                              .weight_decay = o.weight_decay});
  auto* const memory = static_cast<UpdateMemory*>(update_.data());
  backend.upload_async(&memory->scalars, &scalars, sizeof scalars);
  grad_norm(ctx_, {.grad = adapters_.op_grads(), .n = adapters_.size(), .sum_of_squares = &memory->sum_of_squares});
  adamw(ctx_, {.param = adapters_.op_values(),
               .grad = adapters_.op_grads(),
               .m = adapters_.op_exp_avg(),
               .v = adapters_.op_exp_avg_sq(),
               .n = adapters_.size(),
               .scalars = &memory->scalars,
               .sum_of_squares = &memory->sum_of_squares,
               .max_grad_norm = o.max_grad_norm});
  double squares = 0;
  backend.download(&squares, &memory->sum_of_squares, sizeof squares);
  StepResult r;
  r.grad_norm = std::sqrt(squares);
  r.skipped = !std::isfinite(r.grad_norm);  // adamw did nothing
  times_.add(executor_->take_times());
  return r;
}

StepResult Trainer::train_step(const StepBatch& batch, int64_t step, double lr, uint64_t epoch) {
  begin_step();
  int64_t tokens = 0;
  for (const Batch& b : batch.micro) {
    tokens += b.tokens();
    if (batch.total_weight > 0) accumulate_async(b, 1.0 / batch.total_weight, epoch);
  }
  StepResult r;
  if (batch.total_weight > 0) {
    r = update(step, lr);
    r.loss = take_losses() / batch.total_weight;
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
  r.loss = weight > 0 ? StepLosses::weighted_sum(losses, batch.weights) / weight : 0;
  return r;
}

}  // namespace bantam
