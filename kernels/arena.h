// SPDX-License-Identifier: Apache-2.0
// Named device memory, reserved and touched once, before step 1. Its regions carry the names of the plan's lines.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "backend.h"

namespace bantam {

class Arena {
 public:
  struct Region {
    std::string name;
    size_t bytes = 0;
    size_t offset = 0;  ///< result
  };
  /// Allocates the sum of all regions, each on a 64-byte boundary, and writes every page.
  /// Error(does_not_fit) with the regions when there is not that much.
  Arena(const Backend& backend, std::vector<Region> regions);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// First byte of a region; Error(internal) when there is none of that name.
  void* region(const std::string& name) const;
  const std::vector<Region>& regions() const { return regions_; }
  size_t bytes() const { return bytes_; }

 private:
  const Backend& backend_;
  std::vector<Region> regions_;
  size_t bytes_ = 0;
  char* base_ = nullptr;
};

}  // namespace bantam
