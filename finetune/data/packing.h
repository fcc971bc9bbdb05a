// SPDX-License-Identifier: Apache-2.0
// Which rows share a strip: as few packs as best-fit decreasing over all rows needs, each of mixed lengths.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "shuffle.h"

namespace bantam {

/// `count` packs that hold rows of the same lengths: those of `parent` (an index into the list of shapes; -1: none),
/// then `times` rows of `length`.
struct PackShape {
  int32_t parent = -1;
  int32_t length = 0, times = 0;
  int64_t tokens = 0;  ///< of one pack, parents included
  int64_t count = 0;   ///< 0: a parent only
};

/// How rows of these lengths are packed, `counts[n]` rows of n tokens: a function of how many there are of each length,
/// found without looking at single rows. Best-fit decreasing says how many packs are needed, but puts long rows
/// together and short ones together. So the rows are dealt out to that many packs, the longest that is left to the pack
/// with the most room, and only the shortest, as few as will do, fill the least room that takes them. Where that does
/// not fit into one pack in a thousand more, best-fit decreasing it is. Error(internal) for a row over `capacity`.
std::vector<PackShape> pack_shapes(std::span<const int64_t> counts, int64_t capacity);

/// counts[n]: how many of `rows` have n tokens.
std::vector<int64_t> count_lengths(std::span<const int32_t> rows, std::span<const int32_t> lengths);

/// Reorders `rows` (indices of `lengths`; one may stand there twice) into packs and returns where each starts, and the
/// end. Rows of equal length take their places in the order in which they came, so shuffled rows mean random company.
/// `random` shuffles the packs; without it they follow their first rows, and the rows in a pack are in order.
std::vector<int64_t> pack_rows(std::vector<int32_t>& rows, std::span<const int32_t> lengths, int64_t capacity,
                               SplitMix64* random);

}  // namespace bantam
