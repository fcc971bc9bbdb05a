// SPDX-License-Identifier: Apache-2.0
// The merge table of a byte pair encoding, and the loop that applies it to one word.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer.h"

namespace bantam {

class BpeMerges {
 public:
  struct Merge {
    int32_t rank = -1;  ///< -1: no such merge
    int32_t result = -1;
  };

  explicit BpeMerges(size_t expected);
  /// A pair given again takes the later rank, as the reference does.
  void add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;
  /// Merges `n` ids in place: always the pair of the lowest rank, the leftmost of equals. How many are left. O(n log
  /// n).
  /// With `spans`, one for each id, those of merged ids are joined.
  size_t apply(int32_t* ids, size_t n) const;
  size_t apply(int32_t* ids, size_t n, TextSpan* spans) const;

 private:
  // Each with spans or without (where the pointer is not looked at).
  template <bool with_spans>
  size_t apply_short(int32_t* ids, size_t n, TextSpan* spans) const;
  template <bool with_spans>
  size_t apply_long(int32_t* ids, size_t n, TextSpan* spans) const;

  struct Slot {
    uint64_t key = ~uint64_t{0};
    Merge merge;
  };
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace bantam
