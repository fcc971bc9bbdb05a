// SPDX-License-Identifier: Apache-2.0
// bf16 tiles of rows in shared memory and their products on tensor cores, for the attention kernels. A warp owns 16
// rows of the left operand; sums are f32 and stay in registers, and a result becomes the left operand of the next
// product without leaving them. The place of a key in a tile, and so the order of every sum, depends on head_dim and on
// where the key lies in its sequence only: the row contract.
#pragma once
#include "attention_rows.cuh"

namespace bantam::cuda {

inline constexpr int kMmaWarps = 4, kMmaThreads = 32 * kMmaWarps, kMmaRows = 16;

/// Calls f<D>() with the tile width for head_dim, at most 512 (attention.cc has checked it).
template <class F>
void with_mma_width(int64_t head_dim, F&& f) {
  if (head_dim <= 64) return f.template operator()<64>();
  if (head_dim <= 96) return f.template operator()<96>();
  if (head_dim <= 128) return f.template operator()<128>();
  if (head_dim <= 256) return f.template operator()<256>();
  f.template operator()<512>();
}

// ---- device code ----
__device__ __forceinline__ int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int warp_index() {
  return static_cast<int>(threadIdx.x) / 32;
}

/// Where chunk c, of 16 bytes, of row r lies in a tile of D columns. Chunks are permuted within a row so that the same
/// chunk of eight rows, which one ldmatrix reads, lies in eight different groups of banks.
template <int D>
__device__ __forceinline__ int tile_at(int r, int c) {
  static_assert(D % 32 == 0);
  return r * D + 8 * (c ^ (D % 64 == 0 ? r & 7 : r >> 1 & 3));
}

// Eight elements of a row, `n` of them inside it.
template <class T>
__device__ __forceinline__ void load_chunk(const T* p, bool vector, int n, bf16* to) {
  float low[4], high[4];
  load_quad(p, vector, n, low);
  load_quad(p + (n > 4 ? 4 : 0), vector, n - 4, high);
  *reinterpret_cast<uint4*>(to) = make_uint4(bf16_pair(low[0], low[1]), bf16_pair(low[2], low[3]),
                                             bf16_pair(high[0], high[1]), bf16_pair(high[2], high[3]));
}
// Rows that a tile's threads fill at once; a thread keeps to one chunk of them.
template <int D>
inline constexpr int kFillRows = D == 96 ? 8 : kMmaThreads / (D / 8);

/// Starts to fill a tile [Rows][D]: row r is data[at(r) ..] of `width` elements rounded to bf16, zeros after them and
/// where at(r) < 0. It is there after the wait for this thread's copies and a barrier. Loops are kept, for the
/// registers.
template <int D, int Rows, class At>
__device__ __forceinline__ void load_mma_tile(const void* data, const RowLayout& layout, int width, At at, bf16* tile) {
  const int chunk = static_cast<int>(threadIdx.x) % (D / 8), row = static_cast<int>(threadIdx.x) / (D / 8);
  if (row >= kFillRows<D>) return;
  CU_UNROLL_BY(1)
  for (int r = row; r < Rows; r += kFillRows<D>) {
    const int64_t start = at(r);
    const int n = start < 0 ? 0 : width - 8 * chunk;
    const int64_t from = n > 0 ? start + 8 * chunk : 0;
    bf16* const to = tile + tile_at<D>(r, chunk);
    if (layout.wide)
      copy_async16(to, static_cast<const bf16*>(data) + from, n > 0);
    else if (layout.bf16)
      load_chunk(static_cast<const bf16*>(data) + from, layout.vector, n, to);
    else
      load_chunk(static_cast<const float*>(data) + from, layout.vector, n, to);
  }
}

/// Rows of one head of a sequence, from row `first` of its n rows on; `row` is the sequence's first.
struct HeadRows {
  int64_t row;
  int n, first, head, width;
  /// Where row first + r starts; -1 beyond the sequence.
  __device__ __forceinline__ int64_t at(int r, int64_t stride) const {
    return first + r < n ? (row + first + r) * stride + static_cast<int64_t>(head) * width : -1;
  }
};
/// load_mma_tile of such rows; where they are wide an address is a step from the last.
template <int D, int Rows>
__device__ __forceinline__ void load_mma_rows(const void* data, const RowLayout& layout, const HeadRows& rows,
                                              bf16* tile) {
  static_assert(Rows % kFillRows<D> == 0);
  if (!layout.wide)
    return load_mma_tile<D, Rows>(
        data, layout, rows.width, [&](int r) { return rows.at(r, layout.stride); }, tile);
  const int chunk = static_cast<int>(threadIdx.x) % (D / 8), row = static_cast<int>(threadIdx.x) / (D / 8);
  if (row >= kFillRows<D>) return;
  const int left = 8 * chunk < rows.width ? rows.n - rows.first - row : 0;  // rows with something in this chunk
  const bf16* from = static_cast<const bf16*>(data) + (rows.row + rows.first + row) * layout.stride +
                     static_cast<int64_t>(rows.head) * rows.width + 8 * chunk;
  CU_UNROLL
  for (int i = 0; i < Rows; i += kFillRows<D>, from += kFillRows<D> * layout.stride)
    copy_async16(tile + tile_at<D>(row + i, chunk), from, i < left);
}

/// Rows [row, row + 16) and columns [16 k, 16 k + 16) of a tile as a left operand.
template <int D>
__device__ __forceinline__ void load_left(const bf16* tile, int row, int k, uint32_t (&a)[4]) {
  const int lane = lane_index();
  ldmatrix(a, tile + tile_at<D>(row + lane % 16, 2 * k + lane / 16));
}
/// The whole of these rows.
template <int D>
__device__ __forceinline__ void load_left(const bf16* tile, int row, uint32_t (&a)[D / 16][4]) {
  CU_UNROLL
  for (int k = 0; k < D / 16; ++k) load_left<D>(tile, row, k, a[k]);
}

// s += a * b^T for columns [16 k, 16 k + 16) of both; b has 8 N rows.
template <int D, int N>
__device__ __forceinline__ void multiply_nt_step(const uint32_t (&a)[4], const bf16* b, int k, float (&s)[N][4]) {
  const int lane = lane_index(), row = lane / 16 * 8 + lane % 8, chunk = 2 * k + lane / 8 % 2;
  CU_UNROLL
  for (int n = 0; n < N; n += 2) {
    uint32_t pair[4];
    ldmatrix(pair, b + tile_at<D>(8 * n + row, chunk));
    mma_bf16(s[n], a, pair[0], pair[1]);
    mma_bf16(s[n + 1], a, pair[2], pair[3]);
  }
}
/// s = a * b^T: 16 rows of a, held in registers, and the 8 N rows of the tile b. s[n] has columns [8 n, 8 n + 8).
template <int D, int N>
__device__ __forceinline__ void multiply_nt(const uint32_t (&a)[D / 16][4], const bf16* b, float (&s)[N][4]) {
  CU_UNROLL
  for (int n = 0; n < N; ++n) CU_UNROLL
  for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
  CU_UNROLL
  for (int k = 0; k < D / 16; ++k) multiply_nt_step<D>(a[k], b, k, s);
}
/// The same with rows [row, row + 16) of a tile a.
template <int D, int N>
__device__ __forceinline__ void multiply_nt(const bf16* a, int row, const bf16* b, float (&s)[N][4]) {
  CU_UNROLL
  for (int n = 0; n < N; ++n) CU_UNROLL
  for (int i = 0; i < 4; ++i) s[n][i] = 0.0f;
  CU_UNROLL_BY(4)  // all of them: the addresses would fill the registers
  for (int k = 0; k < D / 16; ++k) {
    uint32_t left[4];
    load_left<D>(a, row, k, left);
    multiply_nt_step<D>(left, b, k, s);
  }
}

/// sums += w * b: w [16][8 N], rounded to bf16, times columns [first, first + 8 C) of the 8 N rows of the tile b.
template <int D, int N, int C>
__device__ __forceinline__ void multiply_nn(const float (&w)[N][4], const bf16* b, int first, float (&sums)[C][4]) {
  const int lane = lane_index();
  CU_UNROLL
  for (int k = 0; k < N / 2; ++k) {
    const float(&l)[4] = w[2 * k], (&r)[4] = w[2 * k + 1];
    const uint32_t a[4] = {bf16_pair(l[0], l[1]), bf16_pair(l[2], l[3]), bf16_pair(r[0], r[1]), bf16_pair(r[2], r[3])};
    CU_UNROLL
    for (int c = 0; c < C; c += 2) {
      uint32_t pair[4];
      ldmatrix_trans(pair, b + tile_at<D>(16 * k + lane % 16, first / 8 + c + lane / 16));
      mma_bf16(sums[c], a, pair[0], pair[1]);
      mma_bf16(sums[c + 1], a, pair[2], pair[3]);
    }
  }
}

/// data[start + first ..] = sums[c][i], sums[c][i + 1] of each c, times factor: this thread's part of one row of
/// `width` elements, of which it has those from `first` on.
template <int C>
__device__ __forceinline__ void store_mma_row(void* data, const RowLayout& layout, int64_t start, int first, int width,
                                              const float (&sums)[C][4], int i, float factor) {
  CU_UNROLL
  for (int c = 0; c < C; ++c) {
    const int column = first + 8 * c + 2 * (lane_index() % 4);
    if (column >= width) continue;
    const float low = sums[c][i] * factor, high = sums[c][i + 1] * factor;
    const bool pair = layout.vector;  // then width is a multiple of 4
    if (layout.bf16) {
      bf16* const to = static_cast<bf16*>(data) + start + column;
      if (pair) {
        *reinterpret_cast<uint32_t*>(to) = bf16_pair(low, high);
      } else {
        store(to, low);
        if (column + 1 < width) store(to + 1, high);
      }
    } else {
      float* const to = static_cast<float*>(data) + start + column;
      if (pair) {
        *reinterpret_cast<float2*>(to) = make_float2(low, high);
      } else {
        store(to, low);
        if (column + 1 < width) store(to + 1, high);
      }
    }
  }
}

// Over the four lanes that hold a row.
__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

/// s = the scores of products s, in units of ln 2, so that exp2 makes weights of them.
template <int N>
__device__ __forceinline__ void scores_log2(const AttentionLayout& layout, float (&s)[N][4]) {
  const bool capped = layout.softcap != 0.0f;
  const float factor = capped ? layout.scale / layout.softcap : layout.scale * kLog2E;
  CU_UNROLL
  for (int n = 0; n < N; ++n) CU_UNROLL
  for (int i = 0; i < 4; ++i) s[n][i] = __fmul_rn(factor, s[n][i]);
  if (!capped) return;
  const float cap = layout.softcap * kLog2E;
  CU_UNROLL
  for (int n = 0; n < N; ++n) CU_UNROLL
  for (int i = 0; i < 4; ++i) s[n][i] = __fmul_rn(cap, tanhf(s[n][i]));
}
/// The slope of the softcap at such a score.
__device__ __forceinline__ float slope_log2(const AttentionLayout& layout, float score) {
  const float t = score / (layout.softcap * kLog2E);
  return 1.0f - __fmul_rn(t, t);
}

}  // namespace bantam::cuda
