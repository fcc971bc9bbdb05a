// SPDX-License-Identifier: Apache-2.0
// Rows in quads: a thread takes four neighbours of a row, at once where they are aligned, one by one where not. Which
// thread takes which elements does not depend on alignment, so neither does any result.
#pragma once
#include "cu_portable.cuh"
// The portable header comes first.
#include "../error.h"
#include "../tensor.h"

namespace bantam::cuda {

inline bool rows_aligned4(const ConstTensorView& t) {
  return rows_aligned4(t.data, t.stride, t.dtype);
}
/// The columns of t as the kernels count them.
inline int columns_of(const ConstTensorView& t, const char* op) {
  if (t.cols > (1 << 30))
    throw Error(ErrorCode::device, str("CUDA: ", op, ": ", t.cols, " columns"), "use `device: cpu`");
  return static_cast<int>(t.cols);
}

// Elementwise kernels: one quad per thread; the grid is rows * blocks_per_row.
constexpr int kQuadThreads = 128;
inline int blocks_per_row(int quads) {
  return static_cast<int>(blocks_for(quads, kQuadThreads));
}
struct RowQuad {
  int64_t row;
  int quad;  // may be past the end of the row
};

// ---- device code ----
__device__ __forceinline__ RowQuad row_quad(int blocks) {
  const auto n = static_cast<unsigned>(blocks);
  return {static_cast<int64_t>(blockIdx.x / n), static_cast<int>(blockIdx.x % n * kQuadThreads + threadIdx.x)};
}

/// Elements [i, i + 4) of a row of cols, 0 past its end; `quads`: how many fours of the row may be loaded at once.
/// Returns how many there are.
template <class T>
__device__ __forceinline__ int load_some(const T* row, int i, int cols, int quads, float (&v)[4]) {
  if (i < 4 * quads) {
    load4(row + i, v);
    return 4;
  }
  const int n = cols - i < 4 ? cols - i : 4;
  CU_UNROLL
  for (int j = 0; j < 4; ++j) v[j] = j < n ? load(row + i + j) : 0.0f;
  return n;
}
template <class T>
__device__ __forceinline__ void store_some(T* row, int i, int n, int quads, const float (&v)[4]) {
  if (i < 4 * quads) return store4(row + i, v);
  for (int j = 0; j < n; ++j) store(row + i + j, v[j]);
}
/// row = v, or row += v when `add`, with one rounding.
template <class T>
__device__ __forceinline__ void put_some(T* row, int i, int n, int quads, bool add, float (&v)[4]) {
  if (add) {
    float old[4];
    load_some(row, i, i + n, quads, old);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] += old[j];
  }
  store_some(row, i, n, quads, v);
}

}  // namespace bantam::cuda
