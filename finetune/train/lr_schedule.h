// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace bantam {

enum class LrScheduler : uint8_t { cosine, linear, constant };

struct LrOptions {
  double learning_rate = 2e-4;
  LrScheduler scheduler = LrScheduler::cosine;
  int64_t warmup_steps = 0;  ///< may exceed the total: the rate then never reaches learning_rate
};

/// Rate of optimiser step `step` (from 0) of `total_steps`. Warm-up: learning_rate * (step + 1) / warmup_steps, so the
/// first step already moves. After it, with p = (step - warmup) / (total - warmup): cosine 0.5 (1 + cos(pi p)), linear
/// 1 - p, constant 1.
double learning_rate(const LrOptions& options, int64_t step, int64_t total_steps);

}  // namespace bantam
