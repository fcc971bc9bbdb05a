// SPDX-License-Identifier: Apache-2.0
// What the op tests share: random matrices with room between the rows, error ratios, the row contract.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/tensor.h"
#include "tolerance.h"

namespace bantam::test {

inline const std::vector<int64_t> kWidths = {1, 3, 7, 8, 63, 64, 65, 576, 1000};
inline const std::vector<int64_t> kLengths = {1, 63, 65, 1000};
struct Shape {
  int64_t rows, cols;
};
/// Every width with a few rows, every length with an odd width.
inline std::vector<Shape> shapes() {
  std::vector<Shape> s;
  for (const int64_t c : kWidths) s.push_back({3, c});
  for (const int64_t t : kLengths) s.push_back({t, 65});
  return s;
}
inline const std::vector<DType> kFloats = {DType::f32, DType::bf16};

/// A context with this many threads, made once.
inline Context& context(int threads = 2) {
  static std::vector<std::unique_ptr<Context>> all(8);
  if (!all[threads]) all[threads] = std::make_unique<Context>(ContextOptions{.num_threads = threads});
  return *all[threads];
}

/// SplitMix64; the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [-range, range).
  float uniform(float range = 1) { return range * (static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f); }
  std::vector<float> vector(int64_t n, float range = 1) {
    std::vector<float> v(n);
    for (float& x : v) x = uniform(range);
    return v;
  }

 private:
  uint64_t state_;
};

/// [rows, cols] of f32 or bf16 whose stride leaves 5 elements between rows; those must stay as they are. Nothing
/// follows the last row, so that a sanitizer sees a read past it.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t cols) : dtype_(dtype), rows_(rows), cols_(cols) {
    const size_t n = rows > 0 ? static_cast<size_t>((rows - 1) * (cols + kGap) + cols) : 0;
    if (dtype == DType::bf16)
      half_.assign(n, to_bf16(kMark));
    else
      full_.assign(n, kMark);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < cols; ++i) put(t, i, 0);
  }
  Matrix(DType dtype, int64_t rows, int64_t cols, Random random, float range = 1) : Matrix(dtype, rows, cols) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < cols; ++i) put(t, i, random.uniform(range));
  }
  TensorView view() { return {data(), dtype_, rows_, cols_, cols_ + kGap}; }
  ConstTensorView view() const { return const_cast<Matrix*>(this)->view(); }
  operator TensorView() { return view(); }
  operator ConstTensorView() const { return view(); }
  TensorView part(int64_t r0, int64_t n) { return view().row_range(r0, n); }
  ConstTensorView part(int64_t r0, int64_t n) const { return view().row_range(r0, n); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }
  /// Element as a number; `put` rounds to the dtype.
  float at(int64_t t, int64_t i) const {
    return dtype_ == DType::bf16 ? to_f32(half_[index(t, i)]) : full_[index(t, i)];
  }
  void put(int64_t t, int64_t i, float v) {
    if (dtype_ == DType::bf16)
      half_[index(t, i)] = to_bf16(v);
    else
      full_[index(t, i)] = v;
  }
  std::vector<double> row(int64_t t) const {
    std::vector<double> r(cols_);
    for (int64_t i = 0; i < cols_; ++i) r[i] = at(t, i);
    return r;
  }
  bool gaps_intact() const {
    for (int64_t t = 0; t + 1 < rows_; ++t)
      for (int64_t i = cols_; i < cols_ + kGap; ++i)
        if (at(t, i) != kMark) return false;
    return true;
  }
  /// Same bits.
  bool operator==(const Matrix& o) const {
    return dtype_ == o.dtype_ && rows_ == o.rows_ && cols_ == o.cols_ && same(full_, o.full_) && same(half_, o.half_);
  }

 private:
  static constexpr int64_t kGap = 5;
  static constexpr float kMark = -77;
  size_t index(int64_t t, int64_t i) const { return static_cast<size_t>(t * (cols_ + kGap) + i); }
  void* data() { return dtype_ == DType::bf16 ? static_cast<void*>(half_.data()) : full_.data(); }
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  }
  DType dtype_;
  int64_t rows_, cols_;
  std::vector<float> full_;
  std::vector<bf16> half_;
};

/// The worst error, as a share of its bound; `CHECK(worst.ratio() <= 1)`. NaN counts as infinite.
class Worst {
 public:
  void add(double got, double want, double bound) {
    const double r = std::abs(got - want) / bound;
    if (!(r <= ratio_)) ratio_ = std::isnan(r) ? INFINITY : r;
    ++count_;
  }
  /// Against `want`, with `units` roundings of `scale` before the result is stored as t.
  void add(DType t, double got, double want, double units, double scale) {
    const double before = units * tolerance::kF32 * scale;
    add(got, want, before + tolerance::stored(t, std::abs(want) + before));
  }
  double ratio() const { return count_ > 0 ? ratio_ : INFINITY; }

 private:
  double ratio_ = 0;
  int64_t count_ = 0;
};

/// The row contract: run(ctx, out, r0, n) writes rows [r0, r0 + n) of `out`. All rows at once with 1, 2, 3 and 7
/// threads, and rows in parts, must give the same bits. `start` is what the output holds before.
template <class Run>
void check_row_contract(const Matrix& start, Run run) {
  const int64_t rows = start.rows();
  Matrix whole = start;
  run(context(1), whole, 0, rows);
  CHECK(whole.gaps_intact());
  CHECK(!(whole == start));
  for (const int threads : {2, 3, 7}) {
    Matrix again = start;
    run(context(threads), again, 0, rows);
    CHECK_MESSAGE(again == whole, "threads: ", threads);
  }
  for (const int64_t part : {int64_t{1}, int64_t{7}, int64_t{64}}) {
    if (part >= rows) continue;
    Matrix pieces = start;
    for (int64_t r0 = 0; r0 < rows; r0 += part) run(context(2), pieces, r0, std::min(part, rows - r0));
    CHECK_MESSAGE(pieces == whole, "rows at a time: ", part);
  }
}

/// Calls f and gives the message of the Error it must throw.
template <class F>
std::string error_of(ErrorCode code, F f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  FAIL("no error was thrown");
  return {};
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace bantam::test
