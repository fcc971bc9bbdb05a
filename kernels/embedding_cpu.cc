// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "cpu_ops.h"
#include "embedding.h"
#include "product_tile.h"

namespace bantam {

namespace {
template <class T, class TY>
void gather(const EmbeddingArgs& a, int64_t begin, int64_t end) {
  const int64_t c = a.table.cols;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = static_cast<const T*>(a.table.data) + a.ids[t] * a.table.stride;
    TY* y = a.y.row<TY>(t);
    if constexpr (std::is_same_v<T, TY>)
      std::memcpy(y, x, static_cast<size_t>(c) * sizeof(T));
    else
      for (int64_t i = 0; i < c; ++i) y[i] = from_f32<TY>(to_f32(x[i]));
  }
}
template <class TY>
void decode(const TileEngine& engine, const EmbeddingArgs& a, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 1024;
  float values[kChunk];
  for (int64_t t = begin; t < end; ++t) {
    TY* y = a.y.row<TY>(t);
    for (int64_t k = 0; k < a.table.cols; k += kChunk) {
      const int64_t n = std::min(kChunk, a.table.cols - k);
      engine.decode_row(a.math, a.table, a.ids[t], k, n, values);
      for (int64_t i = 0; i < n; ++i) y[k + i] = from_f32<TY>(values[i]);
    }
  }
}
}  // namespace

void cpu::embedding(Context& ctx, const EmbeddingArgs& args) {
  const TileEngine* engine = args.table.format == WeightFormat::nf4 ? &tile_engine(ctx.isa()) : nullptr;
  parallel_for(ctx, args.y.rows, rows_per_piece(args.table.cols), [&](int64_t begin, int64_t end, int) {
    with_float_type(args.y.dtype, [&]<class TY>() {
      switch (args.table.format) {
        case WeightFormat::nf4:
          return decode<TY>(*engine, args, begin, end);
        case WeightFormat::bf16:
          return gather<bf16, TY>(args, begin, end);
        case WeightFormat::f32:
          return gather<float, TY>(args, begin, end);
      }
    });
  });
}

}  // namespace bantam
