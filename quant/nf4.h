// SPDX-License-Identifier: Apache-2.0
// NF4 quantisation: blocks of 64 along the flattened tensor, and the nested ("double") quantisation of their scales.
// Codes and scales are bit-equal to those of bitsandbytes on the CPU; the first level is kernels/quantize_nf4.h. Not
// fast paths of kernels: those decode themselves.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "../kernels/quantize_nf4.h"
#include "../kernels/tensor.h"
#include "../kernels/thread_pool.h"
#include "../kernels/weight_view.h"
#include "tensor_source.h"

namespace bantam {

/// The signed 8-bit dynamic map (Dettmers et al. 2022, arXiv 2110.02861): 256 values, ascending.
const std::array<float, 256>& dynamic_map();

/// Quantises scales to 8 bits: values - offset, in blocks of 256. codes[n], absmax[(n + 255) / 256].
void nested_quantise(std::span<const float> values, float offset, uint8_t* codes, float* absmax);
/// Mean in f64 in index order, rounded to f32: the offset that nested scales use here.
float fixed_order_mean(std::span<const float> values);

/// An owned NF4 matrix.
struct Nf4Matrix {
  int64_t rows = 0, cols = 0;
  Tensor codes;                   ///< u8 [1, (rows*cols + 1) / 2]
  std::vector<float> absmax;      ///< plain scales; empty when nested
  std::vector<uint8_t> absmax_q;  ///< nested scales
  std::vector<float> nested_absmax;
  float nested_offset = 0;

  WeightView view() const;
  size_t bytes() const;
};

/// Quantises tensor i of a source by slabs of rows, in parallel; the result does not depend on the number of threads.
/// Error(numeric) naming the tensor, the count and the first place when values are not finite.
Nf4Matrix nf4_quantise(const TensorSource& source, size_t i, bool double_quant, ThreadPool& pool);
Nf4Matrix nf4_quantise(const float* x, int64_t rows, int64_t cols, bool double_quant);

/// Decodes elements [first, first + n) of the flattened matrix, whatever its format (f32, bf16: dense ones).
void decode_weight(const WeightView& w, int64_t first, int64_t n, float* out);

/// How far a stored matrix is from its source.
struct WeightError {
  double rms = 0;         ///< root mean square of the difference
  double source_rms = 0;  ///< of the source itself
  double max = 0;         ///< greatest absolute difference
};
WeightError weight_error(const TensorSource& source, size_t i, const WeightView& w);

namespace detail {
/// Error(numeric) naming the tensor, how many of its n values are not finite and the first of them.
void require_finite(const SourceTensor& t, const float* x, int64_t n, int64_t base);
/// Rows of a slab: a multiple of whole blocks, about so many elements.
int64_t slab_rows(int64_t rows, int64_t cols, int64_t elements = int64_t{1} << 20);
/// Calls f(slab index, first row, rows) for all slabs on the threads of the pool, in any order.
void for_slabs(int64_t rows, int64_t cols, ThreadPool& pool, const std::function<void(int64_t, int64_t, int64_t)>& f);
}  // namespace detail

}  // namespace bantam
