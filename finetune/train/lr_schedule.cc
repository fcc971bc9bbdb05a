// SPDX-License-Identifier: Apache-2.0
#include "lr_schedule.h"

#include <cmath>
#include <numbers>

namespace bantam {

double learning_rate(const LrOptions& o, int64_t step, int64_t total_steps) {
  if (step < o.warmup_steps)
    return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup_steps);
  const int64_t rest = total_steps - o.warmup_steps;
  const double p = rest > 0 ? static_cast<double>(step - o.warmup_steps) / static_cast<double>(rest) : 1.0;
  switch (o.scheduler) {
    case LrScheduler::cosine:
      return o.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * (p < 1 ? p : 1.0)));
    case LrScheduler::linear:
      return o.learning_rate * (p < 1 ? 1 - p : 0.0);
    case LrScheduler::constant:
      break;
  }
  return o.learning_rate;
}

}  // namespace bantam
