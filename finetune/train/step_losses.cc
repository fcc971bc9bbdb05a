// SPDX-License-Identifier: Apache-2.0
#include "step_losses.h"

#include <utility>

#include "../../kernels/copy.h"

namespace bantam {

StepLosses::StepLosses(Context& ctx, int64_t max_tokens) : ctx_(ctx) {
  if (ctx.backend().host_memory) return;
  capacity_ = kMicroBatches * static_cast<size_t>(max_tokens);
  memory_ = DeviceBuffer(ctx.backend(), bytes(max_tokens), "the losses of a step");
}

void StepLosses::add(const float* losses, std::span<const float> weights) {
  const size_t n = weights.size();
  if (ctx_.backend().host_memory) {
    sum_ += weighted_sum({losses, n}, weights);
    return;
  }
  if (weights_.size() + n > capacity_) fetch();
  const auto rows = static_cast<int64_t>(n);
  copy(ctx_, {.x = {losses, DType::f32, 1, rows},
              .y = {static_cast<float*>(memory_.data()) + weights_.size(), DType::f32, 1, rows}});
  weights_.insert(weights_.end(), weights.begin(), weights.end());
  sizes_.push_back(n);
}

void StepLosses::fetch() {
  if (sizes_.empty()) return;
  downloaded_.resize(weights_.size());
  memory_.download(downloaded_.data(), downloaded_.size() * sizeof(float));
  std::span<const float> losses = downloaded_, weights = weights_;
  for (const size_t n : sizes_) {
    sum_ += weighted_sum(losses.first(n), weights.first(n));
    losses = losses.subspan(n);
    weights = weights.subspan(n);
  }
  weights_.clear();
  sizes_.clear();
}

double StepLosses::take() {
  fetch();
  return std::exchange(sum_, 0.0);
}

void StepLosses::clear() {
  sum_ = 0;
  weights_.clear();
  sizes_.clear();
}

double StepLosses::weighted_sum(std::span<const float> losses, std::span<const float> weights) {
  double sum = 0;
  for (size_t t = 0; t < losses.size(); ++t) sum += static_cast<double>(weights[t]) * static_cast<double>(losses[t]);
  return sum;
}

}  // namespace bantam
