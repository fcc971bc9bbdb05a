// SPDX-License-Identifier: Apache-2.0
// Checks of an op's arguments in its entry; each failure is Error(internal) "op: what: found ..., expected ...". Not a
// public header.
#pragma once
#include <cstdint>

#include "tensor.h"

namespace bantam::detail {

class OpCheck {
 public:
  explicit constexpr OpCheck(const char* op) : op_(op) {}
  /// A [rows, cols] matrix of f32 or bf16 with cols >= 1, stride >= cols, and data unless rows == 0.
  void matrix(const char* name, const ConstTensorView& v) const;
  /// The same, of the given shape.
  void matrix(const char* name, const ConstTensorView& v, int64_t rows, int64_t cols) const;
  void dtype(const char* name, const ConstTensorView& v, DType want) const;
  void present(const char* name, const void* p) const;
  /// Throws unless ok: "op: <what>, got <found>".
  void that(bool ok, const char* what, double found) const;
  void that(bool ok, const char* what, int64_t found) const;

 private:
  const char* op_;
};

}  // namespace bantam::detail
