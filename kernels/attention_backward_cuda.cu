// SPDX-License-Identifier: Apache-2.0
// Backward of the attention in two passes over the scores, no value written by two blocks. With
//   p = exp(score - lse),  ds = p * (dout v^T - delta) * slope of the softcap,  delta = rowsum(dout * o):
// pass 1, rows are queries: dq = scale * ds k, over tiles of keys in order;
// pass 2, rows are keys:    dv = p^T dout, dk = scale * ds^T q, over the group's heads and tiles of queries in order.
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/attention_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/cudnn_attention.h"
#include "error.h"

namespace bantam::cuda {

namespace {
// One warp per (row, head).
template <class O, class Dout>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_delta_kernel(const O* __restrict__ o, RowLayout o_layout, const Dout* __restrict__ dout,
                           RowLayout dout_layout, float* __restrict__ delta, int64_t delta_stride, int64_t rows,
                           int heads, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kAttentionThreads / 32) + threadIdx.x / 32;
  const int64_t row = i / heads, head = i % heads;
  const bool inside = row < rows;
  float sum = 0.0f;
  for (int c = 4 * lane; inside && c < width; c += 128) {
    float a[4], b[4];
    load_quad(o + row * o_layout.stride + head * width + c, o_layout.vector, width - c, a);
    load_quad(dout + row * dout_layout.stride + head * width + c, dout_layout.vector, width - c, b);
    CU_UNROLL
    for (int j = 0; j < 4; ++j) sum += a[j] * b[j];
  }
  sum = warp_sum(sum);
  if (inside && lane == 0) delta[row * delta_stride + head] = sum;
}

// One block per tile of 16 * R query rows of one key head, over tiles of 16 * C keys.
template <int D, int R, int C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_dq_kernel(const void* __restrict__ q, const void* __restrict__ k, const void* __restrict__ v,
                        const void* __restrict__ dout, const float* __restrict__ lse, const float* __restrict__ delta,
                        void* __restrict__ dq, const int32_t* __restrict__ table, AttentionLayout layout,
                        RowLayout dout_layout, int64_t lse_stride, int64_t delta_stride, RowLayout dq_layout) {
  constexpr int kRows = kSide * R, kKeys = kSide * C;
  CU_DYN_SHARED(float, queries);
  float* const douts = queries + kTileFloats<kRows, D>;
  float* const keys = douts + kTileFloats<kRows, D>;  // before them, values
  float* const weights = keys + kTileFloats<kKeys, D>;
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late blocks see more keys: longest first
  const int kv_head = block % layout.kv_heads, width = layout.head_dim;
  const SequenceBlock s = find_block(table, layout.num_seqs, block / layout.kv_heads);
  const QueryRows rows(s, kRows, layout.group, kv_head);
  const int y = thread_y(), x = thread_x();
  load_tile<D, kRows>(
      q, layout.q, width, [&](int r) { return rows.at(r, layout.q.stride, width); }, queries);
  load_tile<D, kRows>(
      dout, dout_layout, width, [&](int r) { return rows.at(r, dout_layout.stride, width); }, douts);

  float row_lse[R], row_delta[R], sums[R][D / kSide];
  int last[R];
  CU_UNROLL
  for (int i = 0; i < R; ++i) {
    const int r = y * R + i;
    const int64_t row = rows.row + rows.query_of(r);
    row_lse[i] = rows.has(r) ? lse[row * lse_stride + rows.head_of(r)] : 0.0f;
    row_delta[i] = rows.has(r) ? delta[row * delta_stride + rows.head_of(r)] : 0.0f;
    last[i] = rows.last_key(r);
    CU_UNROLL
    for (int c = 0; c < D / kSide; ++c) sums[i][c] = 0.0f;
  }
  const int seen = rows.end_key(0, kRows, s.keys);
  for (int key0 = rows.first_key(0, layout.window) / kKeys * kKeys; key0 < seen; key0 += kKeys) {
    const auto key_at = [&](int64_t stride) {
      return [=](int r) {
        return key0 + r < s.keys ? (s.k_row + key0 + r) * stride + static_cast<int64_t>(kv_head) * width : -1;
      };
    };
    __syncthreads();  // the last keys have been read
    load_tile<D, kKeys>(v, layout.v, width, key_at(layout.v.stride), keys);
    __syncthreads();
    float p[R][C], ds[R][C];
    multiply_nt<D, R, C>(douts, keys, width, ds);
    __syncthreads();
    load_tile<D, kKeys>(k, layout.k, width, key_at(layout.k.stride), keys);
    __syncthreads();
    multiply_nt<D, R, C>(queries, keys, width, p);
    CU_UNROLL
    for (int i = 0; i < R; ++i) CU_UNROLL
    for (int j = 0; j < C; ++j) {
      const int key = key0 + x + kSide * j;
      const Score score = score_of(layout, p[i][j]);
      const bool sees = key <= last[i] && key > last[i] - layout.window;
      ds[i][j] = sees ? expf(score.value - row_lse[i]) * (ds[i][j] - row_delta[i]) * score.slope : 0.0f;
    }
    store_weights(weights, ds);
    multiply_nn<D, R, kKeys>(weights, keys, sums);
  }

  CU_UNROLL
  for (int i = 0; i < R; ++i) {
    const int64_t start = rows.at(y * R + i, dq_layout.stride, width);
    if (start >= 0) store_row<D>(dq, dq_layout, start, width, sums[i], layout.scale);
  }
}

// Wide tiles of queries and of their dout do not fit side by side: one follows the other in the same place.
template <int D>
inline constexpr bool kOneQueryTile = D > 256;

// One block per tile of 16 * R keys of one key head, over the group's heads and tiles of 16 * C queries.
template <int D, int R, int C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_dkv_kernel(const void* __restrict__ q, const void* __restrict__ k, const void* __restrict__ v,
                         const void* __restrict__ dout, const float* __restrict__ lse, const float* __restrict__ delta,
                         void* __restrict__ dk, void* __restrict__ dv, const int32_t* __restrict__ table,
                         AttentionLayout layout, RowLayout dout_layout, int64_t lse_stride, int64_t delta_stride,
                         RowLayout dk_layout, RowLayout dv_layout) {
  constexpr int kKeys = kSide * R, kQueries = kSide * C;
  static_assert(kKeys % kQueries == 0);  // tiles of queries, counted from the sequence's start, begin where keys do
  CU_DYN_SHARED(float, keys);
  float* const values = keys + kTileFloats<kKeys, D>;
  float* const queries = values + kTileFloats<kKeys, D>;
  float* const douts = kOneQueryTile<D> ? queries : queries + kTileFloats<kQueries, D>;
  float* const weights = douts + kTileFloats<kQueries, D>;
  const int kv_head = static_cast<int>(blockIdx.x) % layout.kv_heads, width = layout.head_dim;
  const SequenceBlock s = find_block(table, layout.num_seqs, static_cast<int>(blockIdx.x) / layout.kv_heads);
  const int key0 = s.index * kKeys, y = thread_y(), x = thread_x();
  // Where row `first + r` of the sequence starts in a matrix; -1 beyond the sequence.
  const auto row_at = [&](int first, int head, int64_t stride) {
    return [=](int r) {
      return first + r < s.queries ? (s.q_row + first + r) * stride + static_cast<int64_t>(head) * width : -1;
    };
  };
  load_tile<D, kKeys>(k, layout.k, width, row_at(key0, kv_head, layout.k.stride), keys);
  load_tile<D, kKeys>(v, layout.v, width, row_at(key0, kv_head, layout.v.stride), values);

  float dk_sums[R][D / kSide], dv_sums[R][D / kSide];
  CU_UNROLL
  for (int i = 0; i < R; ++i) CU_UNROLL
  for (int c = 0; c < D / kSide; ++c) dk_sums[i][c] = dv_sums[i][c] = 0.0f;
  const int after = key0 + kKeys - 1 + layout.window;  // the first query that sees none of these keys
  const int end = after < s.queries ? after : s.queries;
  for (int g = 0; g < layout.group; ++g) {
    const int head = kv_head * layout.group + g;
    for (int query0 = key0; query0 < end; query0 += kQueries) {
      __syncthreads();  // the last queries have been read
      load_tile<D, kQueries>(q, layout.q, width, row_at(query0, head, layout.q.stride), queries);
      float p[R][C], ds[R][C];
      if constexpr (kOneQueryTile<D>) {
        __syncthreads();
        multiply_nt<D, R, C>(keys, queries, width, p);
        __syncthreads();  // these queries have been read
      }
      load_tile<D, kQueries>(dout, dout_layout, width, row_at(query0, head, dout_layout.stride), douts);
      __syncthreads();
      if constexpr (!kOneQueryTile<D>) multiply_nt<D, R, C>(keys, queries, width, p);
      multiply_nt<D, R, C>(values, douts, width, ds);
      CU_UNROLL
      for (int j = 0; j < C; ++j) {
        const int query = query0 + x + kSide * j;
        const bool inside = query < s.queries;
        const float query_lse = inside ? lse[(s.q_row + query) * lse_stride + head] : 0.0f;
        const float query_delta = inside ? delta[(s.q_row + query) * delta_stride + head] : 0.0f;
        CU_UNROLL
        for (int i = 0; i < R; ++i) {
          const int key = key0 + y * R + i;
          const bool sees = inside && key <= query && key > query - layout.window;
          const Score score = score_of(layout, p[i][j]);
          p[i][j] = sees ? expf(score.value - query_lse) : 0.0f;
          ds[i][j] = sees ? p[i][j] * (ds[i][j] - query_delta) * score.slope : 0.0f;
        }
      }
      store_weights(weights, p);
      multiply_nn<D, R, kQueries>(weights, douts, dv_sums);
      if constexpr (kOneQueryTile<D>) {
        __syncthreads();  // their dout has been read
        load_tile<D, kQueries>(q, layout.q, width, row_at(query0, head, layout.q.stride), queries);
        __syncthreads();
      }
      store_weights(weights, ds);
      multiply_nn<D, R, kQueries>(weights, queries, dk_sums);
    }
  }

  CU_UNROLL
  for (int i = 0; i < R; ++i) {
    const int r = y * R + i;
    const int64_t dk_start = row_at(key0, kv_head, dk_layout.stride)(r);
    if (dk_start < 0) continue;
    if (dk) store_row<D>(dk, dk_layout, dk_start, width, dk_sums[i], layout.scale);
    if (dv) store_row<D>(dv, dv_layout, row_at(key0, kv_head, dv_layout.stride)(r), width, dv_sums[i], 1.0f);
  }
}

template <int D, int R, int C>
void run_dq(const AttentionBackwardArgs& args) {
  if (!args.dq) return;
  constexpr int kRows = kSide * R, kKeys = kSide * C;
  const AttentionShape& s = args.shape;
  const BlockTable table = upload_block_table(s, s.heads / s.kv_heads, kRows);
  const size_t floats = 2 * kTileFloats<kRows, D> + kTileFloats<kKeys, D> + kTileFloats<kRows, kKeys>;
  launch(attention_dq_kernel<D, R, C>, table.blocks * s.kv_heads, kAttentionThreads, floats * sizeof(float),
         args.q.data, args.k.data, args.v.data, args.dout.data, static_cast<const float*>(args.lse.data),
         static_cast<const float*>(args.delta.data), args.dq.data, table.data,
         attention_layout(s, args.q, args.k, args.v), row_layout(args.dout, s.head_dim), args.lse.stride,
         args.delta.stride, row_layout(args.dq, s.head_dim));
}

template <int D, int R, int C>
void run_dkv(const AttentionBackwardArgs& args) {
  if (!args.dk && !args.dv) return;
  constexpr int kKeys = kSide * R, kQueries = kSide * C;
  const AttentionShape& s = args.shape;
  const BlockTable table = upload_block_table(s, 1, kKeys);
  constexpr int kTiles = kOneQueryTile<D> ? 1 : 2;
  const size_t floats = 2 * kTileFloats<kKeys, D> + kTiles * kTileFloats<kQueries, D> + kTileFloats<kKeys, kQueries>;
  launch(attention_dkv_kernel<D, R, C>, table.blocks * s.kv_heads, kAttentionThreads, floats * sizeof(float),
         args.q.data, args.k.data, args.v.data, args.dout.data, static_cast<const float*>(args.lse.data),
         static_cast<const float*>(args.delta.data), args.dk.data, args.dv.data, table.data,
         attention_layout(s, args.q, args.k, args.v), row_layout(args.dout, s.head_dim), args.lse.stride,
         args.delta.stride, row_layout(args.dk, s.head_dim), row_layout(args.dv, s.head_dim));
}
}  // namespace

void attention_backward(Context&, const AttentionBackwardArgs& args) {
  if (cudnn_attention_backward(args)) return;
  const AttentionShape& s = args.shape;
  with_float_type(args.o.dtype, [&]<class O>() {
    with_float_type(args.dout.dtype, [&]<class Dout>() {
      launch(attention_delta_kernel<O, Dout>, blocks_for(args.q.rows * s.heads, kAttentionThreads / 32),
             kAttentionThreads, 0, static_cast<const O*>(args.o.data), row_layout(args.o, s.head_dim),
             static_cast<const Dout*>(args.dout.data), row_layout(args.dout, s.head_dim),
             static_cast<float*>(args.delta.data), args.delta.stride, args.q.rows, static_cast<int>(s.heads),
             static_cast<int>(s.head_dim));
    });
  });
  if (attention_on_tensor_cores(args.q.dtype, args.math)) return attention_mma_backward(args);
  with_tile_width(s.head_dim, [&]<int D>() {
    // Shared memory stays below the 99 KiB of the smallest devices.
    run_dq<D, D <= 128 ? 4 : 1, D <= 256 ? 2 : 1>(args);
    if constexpr (D == 64)
      run_dkv<D, 4, 2>(args);
    else if constexpr (D == 128)
      run_dkv<D, 2, 2>(args);
    else
      run_dkv<D, 1, 1>(args);
  });
}

}  // namespace bantam::cuda
