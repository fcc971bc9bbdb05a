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
  size_t offset = 0;
};

/// Greatest sum of bytes live at one step: no placement can be below it.
size_t live_peak(const std::vector<Interval>& intervals);

/// Gives every interval an offset (multiples of 64) such that intervals that share a step never overlap; returns the
/// end of the highest. Long-lived first, then large, each at the lowest free place; where that leaves a gap to
/// live_peak, the intervals around the peak are moved to the front, then random exchanges are tried. Deterministic.
size_t place(std::vector<Interval>& intervals);

}  // namespace bantam
