// SPDX-License-Identifier: Apache-2.0
// What a training leaves behind, to be compared with ==.
#pragma once
#include <vector>

#include "finetune/train/trainer.h"

namespace bantam::testing {

struct Trace {
  std::vector<double> losses, norms;
  std::vector<float> values, grads;
  double evaluated = 0;
  bool operator==(const Trace&) const = default;

  void add(const StepResult& r) {
    losses.push_back(r.loss);
    norms.push_back(r.grad_norm);
  }
  /// Of the adapters as they are now; from a device they are fetched first.
  void finish(Trainer& t) {
    t.fetch();
    const AdapterSet& a = t.adapters();
    values.assign(a.values().begin(), a.values().end());
    grads.assign(a.grads().begin(), a.grads().end());
  }
};

}  // namespace bantam::testing
