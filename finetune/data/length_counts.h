// SPDX-License-Identifier: Apache-2.0
// How long rows are: exact counts, so that any percentile can be told.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bantam {

class LengthCounts {
 public:
  void add(int64_t length, int64_t rows = 1) { counts_[length] += rows; }
  int64_t rows() const;
  /// The shortest length that at least `fraction` (0 to 1) of the rows do not exceed; 0 without rows.
  int64_t percentile(double fraction) const;

  struct Bucket {
    int64_t from = 0, to = 0, rows = 0;  ///< lengths from and to included
  };
  /// Powers of two: 1, 2 to 3, 4 to 7, ... from the shortest to the longest row, empty ones between them included.
  std::vector<Bucket> buckets() const;
  /// Lines for people, one a bucket, with a bar.
  std::string histogram() const;

  const std::map<int64_t, int64_t>& counts() const { return counts_; }
  bool operator==(const LengthCounts&) const = default;

 private:
  std::map<int64_t, int64_t> counts_;  // of distinct lengths, which are few beside the rows
};

}  // namespace bantam
