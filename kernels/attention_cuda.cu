// SPDX-License-Identifier: Apache-2.0
// cu_q and cu_k stay host pointers, as attention.h says (its entry reads them): a few words per sequence travel to the
// device as kernel arguments, so that no call waits for an upload, and each block finds its sequence by bisection.
// Products are f32 here; those of bf16 tensors under Math::bf16 run in attention_mma_cuda.cu.
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include <algorithm>
#include <vector>

#include "cuda/attention_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/cudnn_attention.h"
#include "device_scratch.h"
#include "error.h"

namespace bantam::cuda {

namespace {
struct Words {  // within the 4 KiB that kernel arguments may take
  int32_t v[960];
};
constexpr int kWords = sizeof(Words) / sizeof(int32_t);

__global__ void __launch_bounds__(kWords) store_words_kernel(const Words words, int n, int32_t* __restrict__ out) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) out[i] = words.v[i];
}

// One block per tile of 16 * R query rows of one key head; it walks over the keys in tiles of 16 * C counted from the
// sequence's start. Scores that a row may not see are -inf, their weights exact zeros.
template <int D, int R, int C>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_kernel(const void* __restrict__ q, const void* __restrict__ k, const void* __restrict__ v,
                     void* __restrict__ o, float* __restrict__ lse, const int32_t* __restrict__ table,
                     AttentionLayout layout, RowLayout o_layout, int64_t lse_stride) {
  constexpr int kRows = kSide * R, kKeys = kSide * C;
  CU_DYN_SHARED(float, queries);
  float* const keys = queries + kTileFloats<kRows, D>;  // then values
  float* const weights = keys + kTileFloats<kKeys, D>;
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // late blocks see more keys: longest first
  const int kv_head = block % layout.kv_heads, width = layout.head_dim;
  const SequenceBlock s = find_block(table, layout.num_seqs, block / layout.kv_heads);
  const QueryRows rows(s, kRows, layout.group, kv_head);
  const int y = thread_y(), x = thread_x();
  load_tile<D, kRows>(
      q, layout.q, width, [&](int r) { return rows.at(r, layout.q.stride, width); }, queries);

  float max[R], sum[R], out[R][D / kSide];
  int last[R];
  CU_UNROLL
  for (int i = 0; i < R; ++i) {
    max[i] = -INFINITY;
    sum[i] = 0.0f;
    last[i] = rows.last_key(y * R + i);
    CU_UNROLL
    for (int c = 0; c < D / kSide; ++c) out[i][c] = 0.0f;
  }
  const int seen = rows.end_key(0, kRows, s.keys);
  for (int key0 = rows.first_key(0, layout.window) / kKeys * kKeys; key0 < seen; key0 += kKeys) {
    const auto key_at = [&](int64_t stride) {
      return [=](int r) {
        return key0 + r < s.keys ? (s.k_row + key0 + r) * stride + static_cast<int64_t>(kv_head) * width : -1;
      };
    };
    __syncthreads();  // the last values have been read
    load_tile<D, kKeys>(k, layout.k, width, key_at(layout.k.stride), keys);
    __syncthreads();
    float p[R][C];
    multiply_nt<D, R, C>(queries, keys, width, p);
    __syncthreads();
    load_tile<D, kKeys>(v, layout.v, width, key_at(layout.v.stride), keys);
    CU_UNROLL
    for (int i = 0; i < R; ++i) {
      const float old = max[i];
      float m = old;
      CU_UNROLL
      for (int j = 0; j < C; ++j) {
        const int key = key0 + x + kSide * j;
        p[i][j] = key <= last[i] && key > last[i] - layout.window ? score_of(layout, p[i][j]).value : -INFINITY;
        m = fmaxf(m, p[i][j]);
      }
      max[i] = fmaxf(max[i], row_max(m));
      m = max[i] == -INFINITY ? 0.0f : max[i];  // a row that has seen no key yet: its zeros stay
      const float correction = expf(old - m);
      sum[i] = __fmul_rn(sum[i], correction);
      CU_UNROLL
      for (int j = 0; j < C; ++j) {
        p[i][j] = expf(p[i][j] - m);
        sum[i] += p[i][j];
      }
      CU_UNROLL
      for (int c = 0; c < D / kSide; ++c) out[i][c] = __fmul_rn(out[i][c], correction);
    }
    store_weights(weights, p);
    __syncthreads();
    multiply_nn<D, R, kKeys>(weights, keys, out);
  }

  CU_UNROLL
  for (int i = 0; i < R; ++i) {
    const int r = y * R + i;
    const float total = row_sum(sum[i]);
    if (!rows.has(r)) continue;
    if (x == 0) lse[(rows.row + rows.query_of(r)) * lse_stride + rows.head_of(r)] = max[i] + logf(total);
    store_row<D>(o, o_layout, rows.at(r, o_layout.stride, width), width, out[i], 1.0f / total);
  }
}
}  // namespace

RowLayout row_layout(const ConstTensorView& t, int64_t head_dim) {
  const bool bf16 = t.dtype == DType::bf16;
  const bool wide = bf16 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride % 8 == 0 && head_dim % 8 == 0;
  return {t.stride, bf16, rows_aligned4(t.data, t.stride, t.dtype) && head_dim % 4 == 0, wide};
}
AttentionLayout attention_layout(const AttentionShape& s, const ConstTensorView& q, const ConstTensorView& k,
                                 const ConstTensorView& v) {
  return {static_cast<int>(s.num_seqs),
          static_cast<int>(s.kv_heads),
          static_cast<int>(s.heads / s.kv_heads),
          static_cast<int>(s.head_dim),
          static_cast<int>(s.window > 0 && s.window < kNoWindow ? s.window : kNoWindow),
          s.scale,
          s.softcap,
          row_layout(q, s.head_dim),
          row_layout(k, s.head_dim),
          row_layout(v, s.head_dim)};
}

void send_words(const std::vector<int32_t>& words, int32_t* device) {
  for (size_t i = 0; i < words.size(); i += kWords) {
    const size_t count = std::min<size_t>(kWords, words.size() - i);
    Words part{};
    std::copy_n(words.data() + i, count, part.v);
    launch(store_words_kernel, 1, kWords, 0, part, static_cast<int>(count), device + i);
  }
}

BlockTable upload_block_table(const AttentionShape& s, int64_t rows_per_query, int64_t block_rows) {
  const auto n = static_cast<size_t>(s.num_seqs) + 1;
  std::vector<int32_t> table(s.cu_q, s.cu_q + n);
  table.insert(table.end(), s.cu_k, s.cu_k + n);
  int64_t blocks = 0;
  for (size_t i = 0; i < n; ++i) {
    table.push_back(static_cast<int32_t>(blocks));
    if (i + 1 == n) break;
    const int64_t rows = (int64_t{s.cu_q[i + 1]} - s.cu_q[i]) * rows_per_query;
    if (rows > kNoWindow / 2)  // kernels count them in 32 bits, and add a window
      throw Error(ErrorCode::device, str("CUDA: attention: ", rows, " rows of one key head in one sequence"),
                  "use shorter sequences");
    blocks += blocks_for(rows, block_rows);
  }
  auto* device = reinterpret_cast<int32_t*>(workspace(device_scratch(s)));
  send_words(table, device);
  return {device, blocks};
}

namespace {
template <int D, int R, int C>
void run(const AttentionArgs& args) {
  constexpr int kRows = kSide * R, kKeys = kSide * C;
  const AttentionShape& s = args.shape;
  const BlockTable table = upload_block_table(s, s.heads / s.kv_heads, kRows);
  const size_t floats = kTileFloats<kRows, D> + kTileFloats<kKeys, D> + kTileFloats<kRows, kKeys>;
  launch(attention_kernel<D, R, C>, table.blocks * s.kv_heads, kAttentionThreads, floats * sizeof(float), args.q.data,
         args.k.data, args.v.data, args.o.data, static_cast<float*>(args.lse.data), table.data,
         attention_layout(s, args.q, args.k, args.v), row_layout(args.o, s.head_dim), args.lse.stride);
}
}  // namespace

void attention(Context&, const AttentionArgs& args) {
  if (cudnn_attention(args)) return;
  if (attention_on_tensor_cores(args.q.dtype, args.math)) return attention_mma(args);
  const AttentionShape& s = args.shape;
  int64_t queries = 0;  // of the longest sequence
  for (int64_t i = 0; i < s.num_seqs; ++i) queries = std::max<int64_t>(queries, s.cu_q[i + 1] - s.cu_q[i]);
  with_tile_width(s.head_dim, [&]<int D>() {
    // Decoding fills one row of threads; the numbers are the same.
    if (queries * (s.heads / s.kv_heads) <= kSide) return run<D, 1, 2>(args);
    run<D, D <= 128 ? 4 : D <= 256 ? 2 : 1, 2>(args);  // shared memory stays within 99 KiB
  });
}

}  // namespace bantam::cuda
