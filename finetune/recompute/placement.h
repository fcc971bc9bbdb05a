// SPDX-License-Identifier: Apache-2.0
// Where values lie in the arena: offsets for intervals of time, decided before step 1.
#pragma once
#include <cstddef>
#include <vector>

namespace bantam {

/// `bytes` are needed in all steps first .. last (inclusive). `offset` is the result.
struct Interval {
  size_t bytes = 0;
  int first = 0, last = 0;
  bool saved = false;  ///< kept from a forward to its backward: such intervals follow a stack
  size_t offset = 0;
};

/// Greatest sum of bytes live at one step: no placement can be below it.
size_t live_peak(const std::vector<Interval>& intervals);

/// Gives every interval an offset (multiples of 64) such that intervals that share a step never overlap; returns the
/// end of the highest. Saved ones first, as a stack (last freed lowest), the others above it, large ones first: n log
/// n, and enough for deep models. Where that leaves a gap to live_peak and there are few intervals, orders are
/// searched. Deterministic.
size_t place(std::vector<Interval>& intervals);

}  // namespace bantam
