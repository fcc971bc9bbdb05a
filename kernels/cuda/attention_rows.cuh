// SPDX-License-Identifier: Apache-2.0
// What all attention kernels share: how matrices lie in memory, where a block's rows lie in its sequence, which keys a
// row sees, and the score.
#pragma once
#include "cu_portable.cuh"
// The portable header comes first.
#include "../attention.h"

namespace bantam::cuda {

/// How the rows of a matrix lie in memory; its pointer travels beside it, so that it can be checked.
struct RowLayout {
  int64_t stride;
  bool bf16;
  bool vector;  ///< each head's row may be read and written four elements at a time
  bool wide;    ///< and eight of bf16: 16 bytes
};
struct AttentionLayout {
  int num_seqs, kv_heads, group, head_dim;  // group: query heads per key head
  int window;                               // kNoWindow where there is none
  float scale, softcap;
  RowLayout q, k, v;
};
inline constexpr int kNoWindow = 1 << 30;  // no sequence has half as many rows, so sums of the two fit
RowLayout row_layout(const ConstTensorView& t, int64_t head_dim);
AttentionLayout attention_layout(const AttentionShape& s, const ConstTensorView& q, const ConstTensorView& k,
                                 const ConstTensorView& v);

/// cu_q, cu_k and the first block of each sequence, on the device, when `rows_per_query` rows for each query are cut
/// into blocks of `block_rows` that do not cross sequences. Lies in workspace(); nothing waits for the device.
struct BlockTable {
  const int32_t* data;
  int64_t blocks;
};
BlockTable upload_block_table(const AttentionShape& s, int64_t rows_per_query, int64_t block_rows);

// attention_mma_cuda.cu and attention_mma_backward_cuda.cu: products on tensor cores, where
// `attention_on_tensor_cores`.
void attention_mma(const AttentionArgs& args);
void attention_mma_backward(const AttentionBackwardArgs& args);  // delta is there already
inline bool attention_on_tensor_cores(DType q, Math math) {
  return q == DType::bf16 && math == Math::bf16;
}

// ---- device code ----
/// One block's place in its sequence.
struct SequenceBlock {
  int64_t q_row, k_row;  // of the sequence's first query and key
  int queries, keys;     // of the sequence
  int index;             // of this block within the sequence
};
__device__ __forceinline__ SequenceBlock find_block(const int32_t* __restrict__ table, int num_seqs, int block) {
  const int32_t *cu_q = table, *cu_k = cu_q + num_seqs + 1, *first = cu_k + num_seqs + 1;
  int low = 0, high = num_seqs;  // first[low] <= block < first[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first[middle] <= block ? low : high) = middle;
  }
  return {cu_q[low], cu_k[low], cu_q[low + 1] - cu_q[low], cu_k[low + 1] - cu_k[low], block - first[low]};
}

/// The score of a product x of q and k, and the slope of the softcap there. Rounded products are never fused into sums
/// that follow, so that tiles of every shape give the same numbers.
struct Score {
  float value, slope;
};
__device__ __forceinline__ Score score_of(const AttentionLayout& layout, float x) {
  x = __fmul_rn(layout.scale, x);
  if (layout.softcap == 0.0f) return {x, 1.0f};
  const float t = tanhf(x / layout.softcap);
  return {__fmul_rn(layout.softcap, t), 1.0f - __fmul_rn(t, t)};
}

/// The rows of a query tile: pairs (query, head of one group), the head running faster, so that each tile of keys is
/// read once for a group, and one query of several heads shares a tile.
struct QueryRows {
  int64_t row;            // of the first pair's query
  int queries, position;  // queries of the sequence from that one on; its position among the keys
  int skip, group, head;  // heads of the first query that belong to the block before; first head of the group
  __device__ __forceinline__ QueryRows(const SequenceBlock& s, int tile_rows, int group_size, int kv_head) {
    const int first = s.index * tile_rows, query = first / group_size;
    row = s.q_row + query;
    queries = s.queries - query;
    position = s.keys - s.queries + query;
    skip = first % group_size;
    group = group_size;
    head = kv_head * group_size;
  }
  __device__ __forceinline__ int query_of(int r) const { return (skip + r) / group; }
  __device__ __forceinline__ int head_of(int r) const { return head + (skip + r) % group; }
  __device__ __forceinline__ bool has(int r) const { return query_of(r) < queries; }
  /// The last key that row r sees.
  __device__ __forceinline__ int last_key(int r) const { return position + query_of(r); }
  /// The keys [first_key, end_key) are those that some of `rows` rows from row r on sees.
  __device__ __forceinline__ int first_key(int r, int window) const {
    const int first = last_key(r) - window + 1;
    return first > 0 ? first : 0;
  }
  __device__ __forceinline__ int end_key(int r, int rows, int keys) const {
    const int last = last_key(r + rows - 1);
    return last < keys ? last + 1 : keys;
  }
  /// Where row r starts in a matrix of [.., heads * width]; -1 beyond the sequence.
  __device__ __forceinline__ int64_t at(int r, int64_t stride, int width) const {
    return has(r) ? (row + query_of(r)) * stride + static_cast<int64_t>(head_of(r)) * width : -1;
  }
};

template <class T>
__device__ __forceinline__ void load_quad(const T* p, bool vector, int n, float (&v)[4]) {
  if (vector && n > 0) return load4(p, v);  // then n is a multiple of 4
  CU_UNROLL
  for (int j = 0; j < 4; ++j) v[j] = j < n ? load(p + j) : 0.0f;
}
template <class T>
__device__ __forceinline__ void store_quad(T* p, bool vector, int n, const float (&v)[4]) {
  if (vector && n > 0) return store4(p, v);
  CU_UNROLL
  for (int j = 0; j < 4; ++j)
    if (j < n) store(p + j, v[j]);
}
}  // namespace bantam::cuda
