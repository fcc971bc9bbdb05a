// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/cuda_ops.h"
#include "cuda/nf4.cuh"
#include "cuda/quads.cuh"
#include "embedding.h"

namespace bantam::cuda {

namespace {
// The host has checked the ids it knew; a bad one gives NaN, not a read beyond the table.
__device__ __forceinline__ bool in_table(int64_t id, int64_t rows) {
  return id >= 0 && id < rows;
}

template <class T, class Y>
__global__ void __launch_bounds__(kQuadThreads)
    embedding_kernel(const int32_t* __restrict__ ids, const T* __restrict__ table, int64_t table_rows,
                     int64_t table_stride, Y* __restrict__ y, int64_t y_stride, int cols, int quads, int blocks) {
  const auto [row, quad] = row_quad(blocks);
  const int i = 4 * quad;
  if (i >= cols) return;
  float v[4] = {NAN, NAN, NAN, NAN};
  const int64_t id = ids[row];
  int n = cols - i < 4 ? cols - i : 4;
  if (in_table(id, table_rows)) n = load_some(table + id * table_stride, i, cols, quads, v);
  store_some(y + row * y_stride, i, n, quads, v);
}

// Element by element, since a row of the table may begin in the middle of a byte and of a block. Round: the type that
// values have before they are stored.
template <class Round, class Y>
__global__ void __launch_bounds__(kQuadThreads)
    embedding_nf4_kernel(const int32_t* __restrict__ ids, const uint8_t* __restrict__ codes,
                         const float* __restrict__ absmax, const uint8_t* __restrict__ absmax_q,
                         const float* __restrict__ nested_absmax, const float* __restrict__ nested_code,
                         float nested_offset, int64_t table_rows, Y* __restrict__ y, int64_t y_stride, int cols,
                         int quads, int blocks) {
  CU_SHARED(float, table, [16]);
  load_nf4_table(table);
  const auto [row, quad] = row_quad(blocks);
  const int i = 4 * quad;
  if (i >= cols) return;
  const int n = cols - i < 4 ? cols - i : 4;
  const int64_t id = ids[row], begin = id * cols + i;
  float v[4] = {NAN, NAN, NAN, NAN};
  if (in_table(id, table_rows)) {
    CU_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int64_t at = begin + (j < n ? j : 0);
      const uint32_t byte = codes[at / 2];
      const float scale =
          nf4_scale(at / WeightView::kBlock, absmax, absmax_q, nested_absmax, nested_code, nested_offset);
      Round r;
      store(&r, table[at % 2 ? byte & 15 : byte >> 4] * scale);
      v[j] = load(&r);
    }
  }
  store_some(y + row * y_stride, i, n, quads, v);
}
}  // namespace

void embedding(Context&, const EmbeddingArgs& args) {
  const WeightView& table = args.table;
  const TensorView& y = args.y;
  require_float(y.dtype, "embedding", "y");
  if (y.rows == 0 || y.cols == 0) return;
  const int cols = columns_of(y, "embedding"), blocks = blocks_per_row((cols + 3) / 4);
  with_float_type(y.dtype, [&]<class Y>() {
    auto* to = static_cast<Y*>(y.data);
    if (table.format == WeightFormat::nf4) {
      const int quads = rows_aligned4(y) ? cols / 4 : 0;
      with_float_type(args.math == Math::bf16 ? DType::bf16 : DType::f32, [&]<class Round>() {
        launch(embedding_nf4_kernel<Round, Y>, y.rows * blocks, kQuadThreads, 0, args.ids,
               static_cast<const uint8_t*>(table.data), table.absmax, table.absmax_q, table.nested_absmax,
               table.nested_code, table.nested_offset, table.rows, to, y.stride, cols, quads, blocks);
      });
      return;
    }
    const DType type = table.format == WeightFormat::bf16 ? DType::bf16 : DType::f32;
    const int quads = rows_aligned4(y) && rows_aligned4(table.data, table.stride, type) ? cols / 4 : 0;
    with_float_type(type, [&]<class T>() {
      launch(embedding_kernel<T, Y>, y.rows * blocks, kQuadThreads, 0, args.ids, static_cast<const T*>(table.data),
             table.rows, table.stride, to, y.stride, cols, quads, blocks);
    });
  });
}

}  // namespace bantam::cuda
