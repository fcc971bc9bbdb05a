// SPDX-License-Identifier: Apache-2.0
// What kernels see of a matrix that is only read: a frozen weight in its stored format, or an f32 / bf16 matrix.
#pragma once
#include <cstdint>

#include "dtype.h"
#include "tensor.h"

namespace bantam {

enum class WeightFormat : uint8_t { f32, bf16, nf4 };
constexpr const char* name_of(WeightFormat f) {
  return f == WeightFormat::nf4 ? "nf4" : f == WeightFormat::bf16 ? "bf16" : "f32";
}

/// A [rows, cols] matrix, row-major over the flat index i = row * cols + col (nf4: always dense, stride == cols).
/// nf4: the code of element i is the high nibble of codes[i / 2] for even i, the low nibble for odd i; its value is
/// kNf4Code[code] * absmax(i / 64). absmax(b) is `absmax[b]` when that is set (plain), else (nested, "double quant")
/// nested_code[absmax_q[b]] * nested_absmax[b / 256] + nested_offset, computed in f32 in this order, not fused.
struct WeightView {
  WeightFormat format = WeightFormat::f32;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;                    ///< f32, bf16: elements between rows
  const void* data = nullptr;            ///< f32 / bf16 elements, or packed nf4 codes
  const float* absmax = nullptr;         ///< nf4, plain scales: [ceil(rows*cols/64)]
  const uint8_t* absmax_q = nullptr;     ///< nf4, nested scales: [ceil(rows*cols/64)]
  const float* nested_absmax = nullptr;  ///< [ceil(blocks/256)]
  const float* nested_code = nullptr;    ///< [256]
  float nested_offset = 0;

  static constexpr int64_t kBlock = 64, kNestedBlock = 256;

  WeightView() = default;
  /// A dense f32 or bf16 matrix.
  WeightView(const ConstTensorView& t)  // NOLINT: implicit on purpose, activations are operands too
      : format(t.dtype == DType::bf16 ? WeightFormat::bf16 : WeightFormat::f32),
        rows(t.rows),
        cols(t.cols),
        stride(t.stride),
        data(t.data) {}
  explicit operator bool() const { return data != nullptr; }
  /// Scale of nf4 block b.
  float block_absmax(int64_t b) const {
    if (absmax) return absmax[b];
    const float scaled = nested_code[absmax_q[b]] * nested_absmax[b / kNestedBlock];
    return scaled + nested_offset;
  }
};

}  // namespace bantam
