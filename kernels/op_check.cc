// SPDX-License-Identifier: Apache-2.0
#include "op_check.h"

#include <string>

#include "error.h"

namespace bantam::detail {

namespace {
[[noreturn]] void fail(const char* op, const std::string& what) {
  throw Error(ErrorCode::internal, str(op, ": ", what));
}
std::string shape(int64_t rows, int64_t cols) {
  return str("[", rows, ", ", cols, "]");
}
}  // namespace

void OpCheck::matrix(const char* name, const ConstTensorView& v) const {
  if (v.dtype != DType::f32 && v.dtype != DType::bf16)
    fail(op_, str(name, " has dtype ", name_of(v.dtype), ", expected f32 or bf16"));
  if (v.rows < 0 || v.cols < 1)
    fail(op_, str(name, " has shape ", shape(v.rows, v.cols), ", expected at least one column"));
  if (v.stride < v.cols)
    fail(op_, str(name, " has row stride ", v.stride, ", expected at least its ", v.cols, " columns"));
  if (v.rows > 0 && !v.data) fail(op_, str(name, " ", shape(v.rows, v.cols), " has no data"));
}

void OpCheck::matrix(const char* name, const ConstTensorView& v, int64_t rows, int64_t cols) const {
  if (v.rows != rows || v.cols != cols)
    fail(op_, str(name, " has shape ", shape(v.rows, v.cols), ", expected ", shape(rows, cols)));
  matrix(name, v);
}

void OpCheck::dtype(const char* name, const ConstTensorView& v, DType want) const {
  if (v.dtype != want) fail(op_, str(name, " has dtype ", name_of(v.dtype), ", expected ", name_of(want)));
}

void OpCheck::present(const char* name, const void* p) const {
  if (!p) fail(op_, str(name, " is null, expected data"));
}

void OpCheck::that(bool ok, const char* what, double found) const {
  if (!ok) fail(op_, str(what, ", got ", found));
}
void OpCheck::that(bool ok, const char* what, int64_t found) const {
  if (!ok) fail(op_, str(what, ", got ", found));
}

}  // namespace bantam::detail
