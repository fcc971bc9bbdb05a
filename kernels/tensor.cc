// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <cstring>
#include <new>

namespace bantam {

void detail::throw_dtype(DType have, DType want) {
  throw Error(ErrorCode::internal, str("tensor access as ", name_of(want), " but its dtype is ", name_of(have)));
}

Tensor::Tensor(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {
  if (rows < 0 || cols < 0) throw Error(ErrorCode::internal, str("tensor shape [", rows, ", ", cols, "] is negative"));
  const size_t bytes = (this->bytes() + 63) / 64 * 64 + 64;
  data_.reset(std::aligned_alloc(64, bytes));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, bytes);
}

}  // namespace bantam
