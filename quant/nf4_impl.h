// SPDX-License-Identifier: Apache-2.0
// The steps of quantising a matrix, shared by the host's way and the device's. Not a public header.
#pragma once
#include <string>

#include "nf4.h"

namespace bantam::detail {

/// Values that are not finite, and where the first is.
struct NonFinite {
  int64_t count = 0, first = -1;
  void merge(const NonFinite& other);
};
/// Of n values, of which the first has index `base`.
NonFinite find_non_finite(const float* x, int64_t n, int64_t base);
NonFinite find_non_finite(const bf16* x, int64_t n, int64_t base);
/// Error(numeric) naming the tensor, the count and the first place, unless there is none.
void check_finite(const NonFinite& bad, const std::string& name, int64_t cols);

/// Room for codes and plain scales.
Nf4Matrix allocate_nf4(int64_t rows, int64_t cols);
/// Plain scales become nested ones.
void nest(Nf4Matrix& m);

}  // namespace bantam::detail
