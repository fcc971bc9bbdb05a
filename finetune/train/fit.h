// SPDX-License-Identifier: Apache-2.0
// Will it fit, what would, and what is the largest that does. All from shapes, without placing anything.
#pragma once
#include <string>
#include <vector>

#include "training_plan.h"

namespace bantam {

/// What of a run may change to make it fit.
struct BatchShape {
  int64_t micro_batch_size = 1, gradient_accumulation_steps = 8, max_seq_length = 2048;
  /// Tokens of the largest micro-batch with that shape; where the data are known, less than the product.
  std::function<int64_t(int64_t micro_batch_size, int64_t max_seq_length)> tokens;
};

/// A setting and what the plan needs with it and all settings before it.
struct FitChange {
  std::string key, value;  ///< "loss_chunk_bytes", "32MiB"
  size_t need = 0;
};

struct FitAnswer {
  bool fits = false;               ///< with all changes; false: not even then
  std::vector<FitChange> changes;  ///< in the order of advice; empty: fits as it is
  PlanRequest request;             ///< with all changes but a shorter length
  BatchShape shape;                ///< likewise
  bool shortens = false;           ///< the last change is a shorter max_seq_length: rows would be cut or dropped
  std::string text() const;        ///< "gradient_checkpointing: auto, loss_chunk_bytes: 32MiB"
};

/// The smallest changes that make the request fit its limit, in the order checkpointing, on a device layer inputs in
/// host memory, loss chunk, micro-batch (with more accumulation: rows per optimiser step stay), length; each goes on
/// until recompute adds at most 60 % to a step.
FitAnswer make_it_fit(const ModelGraph& model, const PlanRequest& request, const BatchShape& shape,
                      const std::function<CostModel()>& costs);

/// The largest micro-batch in tokens, up to `most`, whose plan fits under the policy; 0: not even one token's.
int64_t largest_tokens(const ModelGraph& model, const PlanRequest& request, const CheckpointPolicy& policy,
                       int64_t most);

/// The largest micro_batch_size that divides rows_per_step and fits; 0: not even 1.
int64_t largest_micro_batch(const ModelGraph& model, const PlanRequest& request, const BatchShape& shape,
                            int64_t rows_per_step, const std::function<CostModel()>& costs);

}  // namespace bantam
