// SPDX-License-Identifier: Apache-2.0
// Backward of the attention of bf16 tensors on tensor cores, in the two passes of attention_backward_cuda.cu. A warp
// owns 16 rows: queries in the first pass, keys in the second. p and ds are rounded to bf16 as operands.
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/attention_mma.cuh"

namespace bantam::cuda {

namespace {
template <int D>
struct QueryPass {
  static constexpr int kRows = kMmaWarps * kMmaRows, kKeys = D <= 64 ? 64 : D <= 128 ? 32 : 16;
  static constexpr size_t kBytes = sizeof(bf16) * size_t{D} * (2 * kRows + 4 * kKeys);
  static_assert(kBytes <= 99 * 1024);
};
template <int D>
struct KeyPass {
  static constexpr int kSplit =
      D <= 128 ? 1 : 2;  // warps that share 16 keys, each with a part of the columns of dk, dv
  static constexpr int kKeys = kMmaWarps / kSplit * kMmaRows, kQueries = D <= 64 ? 64 : 32, kColumns = D / kSplit;
  static constexpr size_t kBytes = sizeof(bf16) * size_t{D} * (2 * kKeys + 4 * kQueries) + sizeof(float) * 4 * kQueries;
  static_assert(kBytes <= 99 * 1024);
  static_assert(kKeys % kQueries == 0);  // tiles of queries, counted from the sequence's start, begin where keys do
};

// s = products of q and k becomes p = exp(score - lse), dp becomes ds, both 0 where `sees` is false; `all`: nowhere.
// lse is in units of ln 2; which row or column an element (n, i) has it from is up to the caller.
template <int N, class Lse, class Delta, class Sees>
__device__ __forceinline__ void score_gradient(const AttentionLayout& layout, bool all, float (&s)[N][4],
                                               float (&dp)[N][4], Lse lse, Delta delta, Sees sees) {
  scores_log2(layout, s);
  const bool capped = layout.softcap != 0.0f;
  CU_UNROLL
  for (int n = 0; n < N; ++n) CU_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float p = exp2_approx(s[n][i] - lse(n, i));
    float ds = p * (dp[n][i] - delta(n, i));
    if (capped) ds *= slope_log2(layout, s[n][i]);
    const bool seen = all || sees(n, i);
    s[n][i] = seen ? p : 0.0f;
    dp[n][i] = seen ? ds : 0.0f;
  }
}

// One block per tile of 64 query rows of one key head; the next tile of keys and values is on its way while one is
// used.
template <int D>
__global__ void __launch_bounds__(kMmaThreads, 2)
    attention_mma_dq_kernel(const void* __restrict__ q, const void* __restrict__ k, const void* __restrict__ v,
                            const void* __restrict__ dout, const float* __restrict__ lse,
                            const float* __restrict__ delta, void* __restrict__ dq, const int32_t* __restrict__ table,
                            AttentionLayout layout, RowLayout dout_layout, int64_t lse_stride, int64_t delta_stride,
                            RowLayout dq_layout) {
  constexpr int kRows = QueryPass<D>::kRows, kKeys = QueryPass<D>::kKeys, N = kKeys / 8;
  CU_DYN_SHARED(bf16, queries);
  bf16* const douts = queries + kRows * D;
  bf16* const stages = douts + kRows * D;                          // two of keys and values
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late blocks see more keys: longest first
  const int kv_head = block % layout.kv_heads, width = layout.head_dim;
  const SequenceBlock s = find_block(table, layout.num_seqs, block / layout.kv_heads);
  const QueryRows rows(s, kRows, layout.group, kv_head);
  const int row = warp_index() * kMmaRows, lane = lane_index();
  const auto load_stage = [&](int key0, int stage) {
    const HeadRows at{s.k_row, s.keys, key0, kv_head, width};
    bf16* const keys = stages + stage * 2 * kKeys * D;
    load_mma_rows<D, kKeys>(k, layout.k, at, keys);
    load_mma_rows<D, kKeys>(v, layout.v, at, keys + kKeys * D);
  };
  load_mma_tile<D, kRows>(
      q, layout.q, width, [&](int r) { return rows.at(r, layout.q.stride, width); }, queries);
  load_mma_tile<D, kRows>(
      dout, dout_layout, width, [&](int r) { return rows.at(r, dout_layout.stride, width); }, douts);
  const int begin = rows.first_key(0, layout.window) / kKeys * kKeys, end = rows.end_key(0, kRows, s.keys);
  load_stage(begin, 0);
  copy_async_commit();

  const bool busy = rows.has(row);
  const int first = rows.first_key(row, layout.window), last = rows.last_key(row + kMmaRows - 1);
  const int common_first = last - layout.window + 1, common_last = rows.last_key(row);
  float own_lse[2], own_delta[2], sums[D / 8][4];
  int own_last[2];
  CU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int r = row + lane / 4 + 8 * h;
    const int64_t at = rows.row + rows.query_of(r);
    own_lse[h] = rows.has(r) ? lse[at * lse_stride + rows.head_of(r)] * kLog2E : 0.0f;
    own_delta[h] = rows.has(r) ? delta[at * delta_stride + rows.head_of(r)] : 0.0f;
    own_last[h] = rows.last_key(r);
  }
  CU_UNROLL
  for (int c = 0; c < D / 8; ++c) CU_UNROLL
  for (int i = 0; i < 4; ++i) sums[c][i] = 0.0f;

  for (int key0 = begin, stage = 0; key0 < end; key0 += kKeys, stage ^= 1) {
    if (key0 + kKeys < end) load_stage(key0 + kKeys, stage ^ 1);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();  // this stage is there
    const bf16 *const keys = stages + stage * 2 * kKeys * D, *const values = keys + kKeys * D;
    if (busy && key0 <= last && key0 + kKeys > first) {
      float p[N][4], ds[N][4];
      multiply_nt<D>(queries, row, keys, p);
      multiply_nt<D>(douts, row, values, ds);
      const bool all = key0 + kKeys - 1 <= common_last && key0 >= common_first;
      score_gradient(
          layout, all, p, ds, [&](int, int i) { return own_lse[i / 2]; }, [&](int, int i) { return own_delta[i / 2]; },
          [&](int n, int i) {
            const int key = key0 + 8 * n + 2 * (lane % 4) + i % 2;
            return key <= own_last[i / 2] && key > own_last[i / 2] - layout.window;
          });
      multiply_nn<D>(ds, keys, 0, sums);
    }
    __syncthreads();  // this stage has been read
  }
  copy_async_wait<0>();

  CU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int64_t start = rows.at(row + lane / 4 + 8 * h, dq_layout.stride, width);
    if (start >= 0) store_mma_row(dq, dq_layout, start, 0, width, sums, 2 * h, layout.scale);
  }
}

// One block per tile of keys of one key head, over the group's heads and tiles of queries; scores lie transposed.
template <int D>
__global__ void __launch_bounds__(kMmaThreads, 2)
    attention_mma_dkv_kernel(const void* __restrict__ q, const void* __restrict__ k, const void* __restrict__ v,
                             const void* __restrict__ dout, const float* __restrict__ lse,
                             const float* __restrict__ delta, void* __restrict__ dk, void* __restrict__ dv,
                             const int32_t* __restrict__ table, AttentionLayout layout, RowLayout dout_layout,
                             int64_t lse_stride, int64_t delta_stride, RowLayout dk_layout, RowLayout dv_layout) {
  using Pass = KeyPass<D>;
  constexpr int kKeys = Pass::kKeys, kQueries = Pass::kQueries, kColumns = Pass::kColumns, N = kQueries / 8;
  CU_DYN_SHARED(bf16, keys);
  bf16* const values = keys + kKeys * D;
  bf16* const stages = values + kKeys * D;                                        // two of queries and their dout
  float* const lse_stages = reinterpret_cast<float*>(stages + 4 * kQueries * D);  // two of lse and delta
  const int kv_head = static_cast<int>(blockIdx.x) % layout.kv_heads, width = layout.head_dim;
  const SequenceBlock s = find_block(table, layout.num_seqs, static_cast<int>(blockIdx.x) / layout.kv_heads);
  const int key0 = s.index * kKeys, lane = lane_index();
  const int row = warp_index() / Pass::kSplit * kMmaRows, column = warp_index() % Pass::kSplit * kColumns;
  const int after = key0 + kKeys - 1 + layout.window;  // the first query that sees none of these keys
  const int end = after < s.queries ? after : s.queries;
  const int tiles = (end - key0 + kQueries - 1) / kQueries, steps = layout.group * tiles;  // of all heads, in order
  const auto load_stage = [&](int step, int stage) {
    const int head = kv_head * layout.group + step / tiles, query0 = key0 + step % tiles * kQueries;
    const HeadRows at{s.q_row, s.queries, query0, head, width};
    bf16* const queries = stages + stage * 2 * kQueries * D;
    load_mma_rows<D, kQueries>(q, layout.q, at, queries);
    load_mma_rows<D, kQueries>(dout, dout_layout, at, queries + kQueries * D);
    const int r = static_cast<int>(threadIdx.x), query = query0 + r;
    if (r < kQueries) {
      float* const to = lse_stages + stage * 2 * kQueries + r;
      const bool inside = query < s.queries;
      to[0] = inside ? lse[(s.q_row + query) * lse_stride + head] * kLog2E : 0.0f;
      to[kQueries] = inside ? delta[(s.q_row + query) * delta_stride + head] : 0.0f;
    }
  };
  const HeadRows own{s.k_row, s.keys, key0, kv_head, width};
  load_mma_rows<D, kKeys>(k, layout.k, own, keys);
  load_mma_rows<D, kKeys>(v, layout.v, own, values);
  load_stage(0, 0);
  copy_async_commit();

  float dk_sums[kColumns / 8][4], dv_sums[kColumns / 8][4];
  CU_UNROLL
  for (int c = 0; c < kColumns / 8; ++c) CU_UNROLL
  for (int i = 0; i < 4; ++i) dk_sums[c][i] = dv_sums[c][i] = 0.0f;
  const int first = key0 + row, last = first + kMmaRows - 1;  // the warp's keys
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2, query0 = key0 + step % tiles * kQueries;
    if (step + 1 < steps) load_stage(step + 1, stage ^ 1);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();  // this stage is there
    const bf16 *const queries = stages + stage * 2 * kQueries * D, *const douts = queries + kQueries * D;
    const float *const lses = lse_stages + stage * 2 * kQueries, *const deltas = lses + kQueries;
    // Some query of the tile sees some key of the warp: the last one is not before, the first one not past the window.
    if (first < s.keys && query0 + kQueries > first && query0 < last + layout.window) {
      float p[N][4], ds[N][4];
      multiply_nt<D>(keys, row, queries, p);
      multiply_nt<D>(values, row, douts, ds);
      const bool all =
          query0 + kQueries <= s.queries && query0 >= last && query0 + kQueries - 1 < first + layout.window;
      const auto column_of = [&](int n, int i) { return 8 * n + 2 * (lane % 4) + i % 2; };
      score_gradient(
          layout, all, p, ds, [&](int n, int i) { return lses[column_of(n, i)]; },
          [&](int n, int i) { return deltas[column_of(n, i)]; },
          [&](int n, int i) {
            const int query = query0 + column_of(n, i), key = first + lane / 4 + i / 2 * 8;
            return query < s.queries && key <= query && key > query - layout.window;
          });
      multiply_nn<D>(p, douts, column, dv_sums);
      multiply_nn<D>(ds, queries, column, dk_sums);
    }
    __syncthreads();  // this stage has been read
  }
  copy_async_wait<0>();

  CU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int r = row + lane / 4 + 8 * h;
    const int64_t dk_start = own.at(r, dk_layout.stride);
    if (dk_start < 0) continue;
    if (dk) store_mma_row(dk, dk_layout, dk_start, column, width, dk_sums, 2 * h, layout.scale);
    if (dv) store_mma_row(dv, dv_layout, own.at(r, dv_layout.stride), column, width, dv_sums, 2 * h, 1.0f);
  }
}
}  // namespace

void attention_mma_backward(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  const auto *lse = static_cast<const float*>(args.lse.data), *delta = static_cast<const float*>(args.delta.data);
  const AttentionLayout layout = attention_layout(s, args.q, args.k, args.v);
  const RowLayout dout = row_layout(args.dout, s.head_dim);
  with_mma_width(s.head_dim, [&]<int D>() {
    if (args.dq) {
      const BlockTable queries = upload_block_table(s, s.heads / s.kv_heads, QueryPass<D>::kRows);
      launch(attention_mma_dq_kernel<D>, queries.blocks * s.kv_heads, kMmaThreads, QueryPass<D>::kBytes, args.q.data,
             args.k.data, args.v.data, args.dout.data, lse, delta, args.dq.data, queries.data, layout, dout,
             args.lse.stride, args.delta.stride, row_layout(args.dq, s.head_dim));
    }
    if (!args.dk && !args.dv) return;
    const BlockTable keys = upload_block_table(s, 1, KeyPass<D>::kKeys);
    launch(attention_mma_dkv_kernel<D>, keys.blocks * s.kv_heads, kMmaThreads, KeyPass<D>::kBytes, args.q.data,
           args.k.data, args.v.data, args.dout.data, lse, delta, args.dk.data, args.dv.data, keys.data, layout, dout,
           args.lse.stride, args.delta.stride, row_layout(args.dk, s.head_dim), row_layout(args.dv, s.head_dim));
  });
}

}  // namespace bantam::cuda
