// SPDX-License-Identifier: Apache-2.0
#include "fit.h"

#include <algorithm>

#include "../../kernels/error.h"

namespace bantam {

namespace {

// Many plans are looked at, so none is placed; what placement may add is kept free.
MemoryPlan plan_of(const ModelGraph& model, PlanRequest r, const std::function<CostModel()>& costs) {
  r.place = false;
  r.decoded_weight_bytes = 0;  // only what has to be
  r.limit.bytes -= r.limit.bytes / 200;
  return plan_training(model, r, costs, false).memory;
}

CostModel no_costs() {
  return CostModel::assume(1e11);
}

// With enough levels of segments nearly everything fits, at many times the time. What is advised costs no more than
// about half a step again.
constexpr double kDearest = 0.6;

bool acceptable(const MemoryPlan& plan) {
  return plan.fits() && plan.recompute_overhead <= kDearest;
}

std::string chunk_text(size_t bytes) {
  return bytes % (size_t{1} << 20) == 0 ? str(bytes >> 20, "MiB") : str(bytes >> 10, "KiB");
}

}  // namespace

std::string FitAnswer::text() const {
  std::string out;
  for (const FitChange& c : changes) out += str(out.empty() ? "" : ", ", c.key, ": ", c.value);
  return out;
}

int64_t largest_tokens(const ModelGraph& model, const PlanRequest& request, const CheckpointPolicy& policy,
                       int64_t most) {
  PlanRequest r = request;
  r.schedule.reset();
  r.checkpointing = policy;
  const auto fits = [&](int64_t tokens) {
    r.max_tokens = tokens;
    return plan_of(model, r, no_costs).fits();
  };
  if (!fits(1)) return 0;
  int64_t low = 1, high = most + 1;
  if (fits(most)) return most;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

int64_t largest_micro_batch(const ModelGraph& model, const PlanRequest& request, const BatchShape& shape,
                            int64_t rows_per_step, const std::function<CostModel()>& costs) {
  for (int64_t m = rows_per_step; m >= 1; --m) {
    if (rows_per_step % m != 0) continue;
    PlanRequest r = request;
    r.max_tokens = shape.tokens(m, shape.max_seq_length);
    if (acceptable(plan_of(model, r, costs))) return m;
  }
  return 0;
}

FitAnswer make_it_fit(const ModelGraph& model, const PlanRequest& request, const BatchShape& shape,
                      const std::function<CostModel()>& costs) {
  FitAnswer a{.request = request, .shape = shape};
  PlanRequest least = request;
  least.decoded_weight_bytes = 0;
  MemoryPlan plan = plan_training(model, least, costs, false).memory;
  const auto done = [&] { return a.fits = a.changes.empty() ? plan.fits() : acceptable(plan); };
  const auto change = [&](std::string key, std::string value) {
    plan = plan_of(model, a.request, costs);
    a.changes.push_back({std::move(key), std::move(value), plan.need()});
  };
  if (done()) return a;

  if (a.request.checkpointing.mode != CheckpointMode::automatic || a.request.schedule) {
    a.request.schedule.reset();
    a.request.checkpointing = {.mode = CheckpointMode::automatic,
                               .offload_inputs = a.request.checkpointing.offload_inputs};
    change("gradient_checkpointing", "auto");
    if (done()) return a;
  }
  if (a.request.device_formats && !a.request.checkpointing.offload_inputs) {
    PlanRequest r = a.request;
    r.checkpointing.offload_inputs = true;
    const MemoryPlan p = plan_of(model, r, costs);
    if (p.host_fits() && (acceptable(p) || p.need() < plan.need())) {
      a.request = r;
      change("activation_offloading", "true");
      if (done()) return a;
    }
  }
  // Halves of the chunk, while that frees anything: the first that fits, else the last that helped.
  constexpr size_t kLeastChunk = size_t{4} << 20;
  const size_t chunk_before = a.request.loss_chunk_bytes;
  size_t best_chunk = chunk_before, best_need = plan.need();
  for (size_t chunk = std::min(chunk_before, size_t{1} << 40) / 2; chunk >= kLeastChunk; chunk /= 2) {
    PlanRequest r = a.request;
    r.loss_chunk_bytes = chunk >> 10 << 10;
    const MemoryPlan p = plan_of(model, r, costs);
    if (p.need() < best_need) best_need = p.need(), best_chunk = r.loss_chunk_bytes;
    if (acceptable(p)) break;
  }
  if (best_chunk != chunk_before) {
    a.request.loss_chunk_bytes = best_chunk;
    change("loss_chunk_bytes", chunk_text(best_chunk));
    if (done()) return a;
  }
  if (shape.micro_batch_size > 1) {
    const int64_t rows = shape.micro_batch_size * shape.gradient_accumulation_steps;
    int64_t m = shape.micro_batch_size - 1;
    for (; m > 1; --m) {
      if (rows % m != 0) continue;
      PlanRequest r = a.request;
      r.max_tokens = shape.tokens(m, shape.max_seq_length);
      if (acceptable(plan_of(model, r, costs))) break;
    }
    a.shape.micro_batch_size = m;
    a.shape.gradient_accumulation_steps = rows / m;
    a.request.max_tokens = shape.tokens(m, shape.max_seq_length);
    change("micro_batch_size", std::to_string(m));
    a.changes.push_back({"gradient_accumulation_steps", std::to_string(rows / m), plan.need()});
    if (done()) return a;
  }
  int64_t low = 0, high = shape.max_seq_length;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    PlanRequest r = a.request;
    r.max_tokens = a.shape.micro_batch_size * middle;
    (acceptable(plan_of(model, r, costs)) ? low : high) = middle;
  }
  if (low >= 8) {
    a.shortens = a.fits = true;
    PlanRequest r = a.request;
    r.max_tokens = a.shape.micro_batch_size * low;
    a.changes.push_back({"max_seq_length", std::to_string(low), plan_of(model, r, costs).need()});
  }
  return a;
}

}  // namespace bantam
