// SPDX-License-Identifier: Apache-2.0
// What the forward and backward of the CPU attention share: tile sizes, a cursor over a thread's scratch, and the
// vector work on a tile of scores. Not a public header.
//
// A tile is stored with one lane per column, [rows][width]: in forward and for dq a column is a query and a row is a
// key, for dk and dv it is the other way round. So each lane does the same steps in the same order whatever shares its
// tile: the row contract. Rows that a lane may not see are exact zeros, which leave its sums as they are.
#pragma once
#include <algorithm>
#include <cstdint>

#include "attention.h"
#include "context.h"
#include "error.h"
#include "product_tile.h"

namespace bantam {

inline constexpr int64_t kMaxHeadDim = 512;

namespace cpu {

/// Sizes depend on the tier and head_dim only.
struct AttentionTiles {
  int64_t width;    ///< columns of a tile: whole panels of the engine, a multiple of 8
  int64_t columns;  ///< columns of a task, a multiple of width
  int64_t keys;     ///< rows of a tile of keys
  int64_t queries;  ///< rows of a tile of queries

  AttentionTiles(const TileEngine& engine, int64_t head_dim) {
    width = engine.nr;
    while (width < 16 || width % 8 != 0) width += engine.nr;
    columns = std::max<int64_t>(1, 128 / width) * width;
    keys = head_dim <= 128 ? 128 : head_dim <= 256 ? 64 : 32;
    queries = std::min<int64_t>(64, keys);
  }
};

/// Hands out pieces of one thread's scratch, 64-byte aligned.
class ScratchCursor {
 public:
  explicit ScratchCursor(void* base) : at_(static_cast<char*>(base)), end_(at_ + Context::kThreadScratch) {}
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  void* take(size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > left()) throw Error(ErrorCode::internal, str("attention needs ", bytes, " more bytes of scratch"));
    void* p = at_;
    at_ += bytes;
    return p;
  }
  float* floats(int64_t n) { return static_cast<float*>(take(static_cast<size_t>(n) * sizeof(float))); }

 private:
  char* at_;
  char* end_;
};

/// A run of `count` rows of sequence `seq`, `first` rows after its start: one task's columns.
struct SequenceBlock {
  int64_t seq, first, count;
};
/// Blocks of at most `columns` rows that the sequences of `cu` make, each counted from its sequence's start.
int64_t count_blocks(const int32_t* cu, int64_t num_seqs, int64_t columns);
SequenceBlock find_block(const int32_t* cu, int64_t columns, int64_t index);

/// How many query heads of a group one task takes (they share packed keys and values): at most `limit`, fewer where
/// that would leave threads without work. Changes no number.
int64_t heads_per_task(const Context& ctx, int64_t blocks, const AttentionShape& shape, int64_t limit);

/// Which rows of a tile a lane sees: lane c sees the `window` rows up to edge + c * slope. slope is 0 where all columns
/// are heads of one query.
struct Band {
  int64_t edge;
  int64_t slope;
  int64_t window;
};
/// Of a shape without a window.
inline constexpr int64_t kNoWindow = int64_t{1} << 40;
inline int64_t window_of(const AttentionShape& s) {
  return s.window > 0 ? std::min(s.window, kNoWindow) : kNoWindow;
}

/// The score of a product x of q and k: scale * x, or softcap * tanh(scale * x / softcap) where softcap > 0.
struct ScoreRule {
  float scale, softcap;
};

/// One step of the online softmax on s [rows][width], products in, exp(score - max) out, 0 where unseen; rows
/// [rows, padded) are zeroed. Updates max and sum [width]; correction[c] = exp(old max - new max), 0 for a lane that
/// has seen no row yet. Returns false when every correction is 1.
bool softmax_tile(float* s, int64_t rows, int64_t padded, int64_t width, Band band, ScoreRule rule, float* max,
                  float* sum, float* correction);
/// x [rows][width] *= factor[c].
void scale_columns(float* x, int64_t rows, int64_t width, const float* factor);
/// Gradients are those of the score over `scale`: p * (dp - delta) times the slope of the softcap.
/// s = that gradient with p = exp(score - lse[c]), 0 where unseen; rows [rows, padded) are zeroed.
void score_gradient_by_column(float* s, const float* dp, int64_t rows, int64_t padded, int64_t width, Band band,
                              ScoreRule rule, const float* lse, const float* delta);
/// s = p = exp(score - lse[r]) and dp = the gradient; rows are queries here, and row r sees the `window` lanes up to
/// edge + r: elsewhere both are 0. The band's slope is not read.
void score_gradient_by_row(float* s, float* dp, int64_t rows, int64_t width, Band band, ScoreRule rule,
                           const float* lse, const float* delta);
/// Row c of y = x[:, c] * factor[c] for c < columns; x is [n][width], rows of y have n elements.
void store_columns(const float* x, int64_t n, int64_t width, int64_t columns, const float* factor, const TensorView& y);
/// sum_i a[i] * b[i], order fixed by n.
float dot(const ConstTensorView& a, const ConstTensorView& b, int64_t row, int64_t column, int64_t n);

}  // namespace cpu
}  // namespace bantam
