// SPDX-License-Identifier: Apache-2.0
// Forward of the attention of bf16 tensors on tensor cores, in the manner of FlashAttention-2: a warp owns 16 query
// rows, whose scores, softmax and sums stay in its registers. Weights are rounded to bf16 for the product with the
// values; their sum is that of the f32 ones.
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/attention_mma.cuh"

namespace bantam::cuda {

namespace {
// Keys of a tile; warps that share 16 rows, each with a part of the columns of o; and whether the queries of a warp fit
// its registers: then their tile lies where values come later.
template <int D>
struct ForwardTile {
  static constexpr bool kQueriesInRegisters = D <= 128;
  static constexpr int kSplit = D <= 256 ? 1 : 2, kColumns = D / kSplit;
  static constexpr int kRows = kMmaWarps / kSplit * kMmaRows, kKeys = D <= 128 ? 64 : 32;
  static_assert(!kQueriesInRegisters || kRows <= kKeys);
  static constexpr size_t kBytes = sizeof(bf16) * size_t{D} * (2 * kKeys + (kQueriesInRegisters ? 0 : kRows));
  static_assert(kBytes <= 99 * 1024);
};

// One block per tile of query rows of one key head; it walks over the keys in tiles counted from the sequence's
// start. While scores are computed the values are on their way, while those are added up the next keys.
template <int D>
__global__ void __launch_bounds__(kMmaThreads, D <= 64 ? 3 : 2)
    attention_mma_kernel(const void* __restrict__ q, const void* __restrict__ k, const void* __restrict__ v,
                         void* __restrict__ o, float* __restrict__ lse, const int32_t* __restrict__ table,
                         AttentionLayout layout, RowLayout o_layout, int64_t lse_stride) {
  using Tile = ForwardTile<D>;
  constexpr int kRows = Tile::kRows, kKeys = Tile::kKeys, kColumns = Tile::kColumns, N = kKeys / 8;
  CU_DYN_SHARED(bf16, keys);
  bf16* const values = keys + kKeys * D;
  bf16* const queries = Tile::kQueriesInRegisters ? values : values + kKeys * D;
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late blocks see more keys: longest first
  const int kv_head = block % layout.kv_heads, width = layout.head_dim;
  const SequenceBlock s = find_block(table, layout.num_seqs, block / layout.kv_heads);
  const QueryRows rows(s, kRows, layout.group, kv_head);
  // The warp's first row and column.
  const int row = warp_index() / Tile::kSplit * kMmaRows, column = warp_index() % Tile::kSplit * kColumns;
  const int lane = lane_index();
  const auto load_keys = [&](const void* data, const RowLayout& data_layout, int key0, bf16* tile) {
    load_mma_rows<D, kKeys>(data, data_layout, {s.k_row, s.keys, key0, kv_head, width}, tile);
    copy_async_commit();
  };
  load_mma_tile<D, kRows>(
      q, layout.q, width, [&](int r) { return rows.at(r, layout.q.stride, width); }, queries);
  copy_async_commit();
  const int begin = rows.first_key(0, layout.window) / kKeys * kKeys, end = rows.end_key(0, kRows, s.keys);
  load_keys(k, layout.k, begin, keys);

  [[maybe_unused]] uint32_t left[Tile::kQueriesInRegisters ? D / 16 : 1][4];
  if constexpr (Tile::kQueriesInRegisters) {
    copy_async_wait<1>();
    __syncthreads();
    load_left<D>(queries, row, left);
  }
  // What the warp's rows see, all together and in common; this thread has rows lane / 4 and lane / 4 + 8 of it.
  const bool busy = rows.has(row);
  const int first = rows.first_key(row, layout.window), last = rows.last_key(row + kMmaRows - 1);
  const int common_first = last - layout.window + 1, common_last = rows.last_key(row);
  const int own_last[2] = {rows.last_key(row + lane / 4), rows.last_key(row + lane / 4 + 8)};
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, out[kColumns / 8][4];
  CU_UNROLL
  for (int c = 0; c < kColumns / 8; ++c) CU_UNROLL
  for (int i = 0; i < 4; ++i) out[c][i] = 0.0f;

  for (int key0 = begin; key0 < end; key0 += kKeys) {
    const bool sees = busy && key0 <= last && key0 + kKeys > first;  // some row of the warp some key
    float p[N][4];
    copy_async_wait<0>();
    __syncthreads();  // the keys are there; the last values have been read
    load_keys(v, layout.v, key0, values);
    if (sees) {
      if constexpr (Tile::kQueriesInRegisters)
        multiply_nt<D>(left, keys, p);
      else
        multiply_nt<D>(queries, row, keys, p);
    }
    copy_async_wait<0>();
    __syncthreads();  // the values are there; the keys have been read
    if (key0 + kKeys < end) load_keys(k, layout.k, key0 + kKeys, keys);
    if (!sees) continue;

    scores_log2(layout, p);
    if (key0 + kKeys - 1 > common_last || key0 < common_first) {
      CU_UNROLL
      for (int n = 0; n < N; ++n) CU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = key0 + 8 * n + 2 * (lane % 4) + i % 2;
        if (key > own_last[i / 2] || key <= own_last[i / 2] - layout.window) p[n][i] = -INFINITY;
      }
    }
    float correction[2];
    CU_UNROLL
    for (int h = 0; h < 2; ++h) {
      float m = max[h];
      CU_UNROLL
      for (int n = 0; n < N; ++n) m = fmaxf(m, fmaxf(p[n][2 * h], p[n][2 * h + 1]));
      const float old = max[h];
      max[h] = quad_max(m);
      m = max[h] == -INFINITY ? 0.0f : max[h];  // a row that has seen no key yet: its zeros stay
      correction[h] = exp2_approx(old - m);
      sum[h] = __fmul_rn(sum[h], correction[h]);
      CU_UNROLL
      for (int n = 0; n < N; ++n) CU_UNROLL
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        p[n][i] = exp2_approx(p[n][i] - m);
        sum[h] += p[n][i];
      }
    }
    CU_UNROLL
    for (int c = 0; c < kColumns / 8; ++c) CU_UNROLL
    for (int i = 0; i < 4; ++i) out[c][i] = __fmul_rn(out[c][i], correction[i / 2]);
    multiply_nn<D>(p, values, column, out);
  }

  CU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int r = row + lane / 4 + 8 * h;
    const float total = quad_sum(sum[h]);
    if (!rows.has(r)) continue;
    if (lane % 4 == 0 && column == 0)
      lse[(rows.row + rows.query_of(r)) * lse_stride + rows.head_of(r)] = (max[h] + log2f(total)) * kLn2;
    store_mma_row(o, o_layout, rows.at(r, o_layout.stride, width), column, width, out, 2 * h, 1.0f / total);
  }
}
}  // namespace

void attention_mma(const AttentionArgs& args) {
  const AttentionShape& s = args.shape;
  with_mma_width(s.head_dim, [&]<int D>() {
    const BlockTable table = upload_block_table(s, s.heads / s.kv_heads, ForwardTile<D>::kRows);
    launch(attention_mma_kernel<D>, table.blocks * s.kv_heads, kMmaThreads, ForwardTile<D>::kBytes, args.q.data,
           args.k.data, args.v.data, args.o.data, static_cast<float*>(args.lse.data), table.data,
           attention_layout(s, args.q, args.k, args.v), row_layout(args.o, s.head_dim), args.lse.stride);
  });
}

}  // namespace bantam::cuda
