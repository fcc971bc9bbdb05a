// SPDX-License-Identifier: Apache-2.0
// Many samples: in memory, or in a file that is mapped, so that their number is not bounded by memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "sample.h"

namespace bantam {

/// A sample that somebody else holds. weights may be empty (1 everywhere).
struct SampleView {
  uint64_t id = 0;
  std::span<const int32_t> ids;
  std::span<const uint8_t> trained;
  std::span<const float> weights;
  int64_t targets() const;
};

/// A list of samples. Copies share what they hold; views live as long as any of them. Safe to read from several
/// threads.
class SampleSet {
 public:
  SampleSet() = default;
  SampleSet(std::vector<Sample> samples);  // not explicit: a vector is a set
  size_t size() const;
  bool empty() const { return size() == 0; }
  SampleView operator[](size_t i) const;
  int64_t length(size_t i) const;  ///< tokens
  uint64_t id(size_t i) const;
  /// Those at `which`, in that order, sharing the tokens.
  SampleSet subset(std::vector<uint32_t> which) const;

 private:
  friend class SampleWriter;
  struct Storage;
  std::shared_ptr<const Storage> storage_;
  std::vector<uint32_t> which_;  ///< empty: all
  bool all_ = true;
};

}  // namespace bantam
