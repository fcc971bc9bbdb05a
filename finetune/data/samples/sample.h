// SPDX-License-Identifier: Apache-2.0
// One tokenised row.
#pragma once
#include <cstdint>
#include <vector>

namespace bantam {

/// trained[i] != 0: token i is a target (predicted from the tokens before it); trained[0] is always 0.
struct Sample {
  uint64_t id = 0;  ///< stable: a function of the dataset's index, row number and piece (split) only
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;
  std::vector<float> weights;  ///< of each trained token's loss, > 0; empty: 1 everywhere
  int64_t targets() const;
};

}  // namespace bantam
