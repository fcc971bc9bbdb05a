// SPDX-License-Identifier: Apache-2.0
// Tensors: a view of somebody's memory (TensorView, ConstTensorView) and an owner (Tensor). Matrices are row-major,
// [rows, cols] with a row stride in elements, so that a slice of columns or of a cache is a view too.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "dtype.h"
#include "error.h"

namespace bantam {

namespace detail {
[[noreturn]] void throw_dtype(DType have, DType want);
}

/// Non-owning, read-only. `data == nullptr` means "absent" where a contract calls an argument optional.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;  ///< elements from one row to the next, >= cols

  ConstTensorView() = default;
  ConstTensorView(const void* d, DType t, int64_t r, int64_t c, int64_t s = -1)
      : data(d), dtype(t), rows(r), cols(c), stride(s < 0 ? c : s) {}
  explicit operator bool() const { return data != nullptr; }
  /// Pointer to a row; throws Error(internal) when T is not the dtype.
  template <class T>
  const T* row(int64_t i) const {
    if (dtype_of<T> != dtype) detail::throw_dtype(dtype, dtype_of<T>);
    return static_cast<const T*>(data) + i * stride;
  }
  /// The columns [c0, c0 + n) of every row.
  ConstTensorView columns(int64_t c0, int64_t n) const {
    return {static_cast<const char*>(data) + static_cast<size_t>(c0) * size_of(dtype), dtype, rows, n, stride};
  }
  ConstTensorView row_range(int64_t r0, int64_t n) const {
    return {static_cast<const char*>(data) + static_cast<size_t>(r0 * stride) * size_of(dtype), dtype, n, cols, stride};
  }
};

/// Non-owning, writable.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;

  TensorView() = default;
  TensorView(void* d, DType t, int64_t r, int64_t c, int64_t s = -1)
      : data(d), dtype(t), rows(r), cols(c), stride(s < 0 ? c : s) {}
  explicit operator bool() const { return data != nullptr; }
  operator ConstTensorView() const { return {data, dtype, rows, cols, stride}; }
  template <class T>
  T* row(int64_t i) const {
    if (dtype_of<T> != dtype) detail::throw_dtype(dtype, dtype_of<T>);
    return static_cast<T*>(data) + i * stride;
  }
  TensorView columns(int64_t c0, int64_t n) const {
    return {static_cast<char*>(data) + static_cast<size_t>(c0) * size_of(dtype), dtype, rows, n, stride};
  }
  TensorView row_range(int64_t r0, int64_t n) const {
    return {static_cast<char*>(data) + static_cast<size_t>(r0 * stride) * size_of(dtype), dtype, n, cols, stride};
  }
};

/// Owns 64-byte aligned, zero-filled host memory for one matrix.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, int64_t rows, int64_t cols);
  TensorView view() { return {data_.get(), dtype_, rows_, cols_}; }
  ConstTensorView view() const { return {data_.get(), dtype_, rows_, cols_}; }
  operator TensorView() { return view(); }
  operator ConstTensorView() const { return view(); }
  template <class T>
  T* data() {
    return view().template row<T>(0);
  }
  template <class T>
  const T* data() const {
    return view().template row<T>(0);
  }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }
  size_t bytes() const { return static_cast<size_t>(rows_ * cols_) * size_of(dtype_); }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  DType dtype_ = DType::f32;
  int64_t rows_ = 0, cols_ = 0;
};

}  // namespace bantam
