// SPDX-License-Identifier: Apache-2.0
// f32 tiles of rows in shared memory and their products by FMA on registers: attention of f32 tensors, and of bf16 ones
// under Math::f32. attention_mma.cuh has the bf16 tiles.
//
// A block is 16 x 16 threads. Thread (y, x) owns the rows y * R + i of a tile of scores and their columns x + 16 * j,
// and of a result of head_dim columns the fours 4 * x + 64 * j: a row belongs to one half of a warp. The order of each
// sum depends on head_dim and the column tile only, never on R or on the other rows: the row contract.
#pragma once
#include "attention_rows.cuh"

namespace bantam::cuda {

inline constexpr int kAttentionThreads = 256, kSide = 16;

/// Calls f<D>() with the tile width for head_dim, at most 512 (attention.cc has checked it).
template <class F>
void with_tile_width(int64_t head_dim, F&& f) {
  if (head_dim <= 64) return f.template operator()<64>();
  if (head_dim <= 128) return f.template operator()<128>();
  if (head_dim <= 256) return f.template operator()<256>();
  f.template operator()<512>();
}
/// Floats of a tile of Rows rows: four more per row than its width keep columns of it in different banks.
template <int Rows, int Width>
inline constexpr size_t kTileFloats = size_t{Rows} * (Width + 4);

// ---- device code ----
__device__ __forceinline__ int thread_x() {
  return static_cast<int>(threadIdx.x) % kSide;
}
__device__ __forceinline__ int thread_y() {
  return static_cast<int>(threadIdx.x) / kSide;
}

template <class T, int D, int Rows, class At>
__device__ __forceinline__ void load_tile_of(const T* data, bool vector, int width, At at, float* tile) {
  CU_UNROLL
  for (int i = 0; i < Rows * D / 4; i += kAttentionThreads) {
    const int quad = i + static_cast<int>(threadIdx.x), r = quad / (D / 4), c = quad % (D / 4) * 4;
    const int64_t start = at(r);
    float v[4];
    load_quad(data + (start < 0 ? 0 : start + c), vector, start < 0 ? 0 : width - c, v);
    store4(tile + r * (D + 4) + c, v);
  }
}
/// tile [Rows][D + 4], f32: row r is data[at(r) ..] of `width` elements, zeros after them and where at(r) < 0.
template <int D, int Rows, class At>
__device__ __forceinline__ void load_tile(const void* data, const RowLayout& layout, int width, At at, float* tile) {
  if (layout.bf16)
    load_tile_of<bf16, D, Rows>(static_cast<const bf16*>(data), layout.vector, width, at, tile);
  else
    load_tile_of<float, D, Rows>(static_cast<const float*>(data), layout.vector, width, at, tile);
}

/// data[start ..] = sums * factor: this thread's part of one row of `width` elements.
template <int D>
__device__ __forceinline__ void store_row(void* data, const RowLayout& layout, int64_t start, int width,
                                          const float (&sums)[D / kSide], float factor) {
  CU_UNROLL
  for (int j = 0; j < D / 64; ++j) {
    const int c = 64 * j + 4 * thread_x();
    const float v[4] = {sums[4 * j] * factor, sums[4 * j + 1] * factor, sums[4 * j + 2] * factor,
                        sums[4 * j + 3] * factor};
    if (layout.bf16)
      store_quad(static_cast<bf16*>(data) + start + c, layout.vector, width - c, v);
    else
      store_quad(static_cast<float*>(data) + start + c, layout.vector, width - c, v);
  }
}

/// s[i][j] = row (y * R + i) of a . row (x + 16 * j) of b, over `width` elements; tiles of width D.
template <int D, int R, int C>
__device__ __forceinline__ void multiply_nt(const float* a, const float* b, int width, float (&s)[R][C]) {
  a += thread_y() * R * (D + 4);
  b += thread_x() * (D + 4);
  CU_UNROLL
  for (int i = 0; i < R; ++i) CU_UNROLL
  for (int j = 0; j < C; ++j) s[i][j] = 0.0f;
  for (int c = 0; c < width; c += 4) {
    float av[R][4], bv[C][4];
    CU_UNROLL
    for (int i = 0; i < R; ++i) load4(a + i * (D + 4) + c, av[i]);
    CU_UNROLL
    for (int j = 0; j < C; ++j) load4(b + j * kSide * (D + 4) + c, bv[j]);
    CU_UNROLL
    for (int e = 0; e < 4; ++e) CU_UNROLL
    for (int i = 0; i < R; ++i) CU_UNROLL
    for (int j = 0; j < C; ++j) s[i][j] += av[i][e] * bv[j][e];
  }
}

/// sums[i] += row (y * R + i) of w times b: w [16 R][Depth + 4], b [Depth][D + 4].
template <int D, int R, int Depth>
__device__ __forceinline__ void multiply_nn(const float* w, const float* b, float (&sums)[R][D / kSide]) {
  w += thread_y() * R * (Depth + 4);
  b += thread_x() * 4;
  for (int k = 0; k < Depth; k += 4) {
    float wv[R][4];
    CU_UNROLL
    for (int i = 0; i < R; ++i) load4(w + i * (Depth + 4) + k, wv[i]);
    CU_UNROLL
    for (int e = 0; e < 4; ++e) CU_UNROLL
    for (int j = 0; j < D / 64; ++j) {
      float bv[4];
      load4(b + (k + e) * (D + 4) + 64 * j, bv);
      CU_UNROLL
      for (int i = 0; i < R; ++i) CU_UNROLL
      for (int c = 0; c < 4; ++c) sums[i][4 * j + c] += wv[i][e] * bv[c];
    }
  }
}

/// Sets this thread's part of w [16 R][16 C + 4], which multiply_nn then reads within the same warp.
template <int R, int C>
__device__ __forceinline__ void store_weights(float* w, const float (&s)[R][C]) {
  __syncwarp();  // the last product has read w
  CU_UNROLL
  for (int i = 0; i < R; ++i) CU_UNROLL
  for (int j = 0; j < C; ++j) w[(thread_y() * R + i) * (kSide * C + 4) + thread_x() + kSide * j] = s[i][j];
  __syncwarp();
}

// Over the 16 threads that own a row.
__device__ __forceinline__ float row_max(float v) {
  CU_UNROLL
  for (int o = kSide / 2; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
__device__ __forceinline__ float row_sum(float v) {
  CU_UNROLL
  for (int o = kSide / 2; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

}  // namespace bantam::cuda
