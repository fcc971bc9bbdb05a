// SPDX-License-Identifier: Apache-2.0
// The ranks of a run. Gradients are one flat buffer, so a step talks to other ranks once; one rank is a no-op.
#pragma once
#include <span>

namespace bantam {

struct Comm {
  int rank = 0, ranks = 1;
  /// Sums the buffer over all ranks in place, in rank order; null with one rank.
  void (*all_reduce)(void* state, std::span<float> buffer) = nullptr;
  void* state = nullptr;

  void sum(std::span<float> buffer) const {
    if (ranks > 1) all_reduce(state, buffer);
  }
};

}  // namespace bantam
