// SPDX-License-Identifier: Apache-2.0
#include "attention_tiles.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_tiles.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

// Lane indices c + 0, 1, ... as integers.
HWY_INLINE hn::Vec<D8Int> lane_index(int64_t c) {
  return hn::Iota(D8Int(), static_cast<int32_t>(c));
}

// Beyond a tile's size an edge is an edge: keeps lane arithmetic far from overflow.
HWY_INLINE int32_t clamp_edge(int64_t edge) {
  return static_cast<int32_t>(std::clamp<int64_t>(edge, -(1 << 20), 1 << 20));
}

// Which lanes see row r: r <= edge + c * slope.
HWY_INLINE hn::Mask<D8> sees(hn::Vec<D8Int> last_row, int64_t r) {
  return hn::RebindMask(D8(), hn::Gt(last_row, hn::Set(D8Int(), static_cast<int32_t>(r - 1))));
}

HWY_INLINE hn::Vec<D8Int> last_rows(cpu::CausalEdge causal, int64_t c) {
  const auto edge = hn::Set(D8Int(), clamp_edge(causal.edge));
  return causal.slope ? hn::Add(edge, lane_index(c)) : edge;
}

// Rows below this are seen by every lane.
HWY_INLINE int64_t rows_seen_by_all(cpu::CausalEdge causal, int64_t rows) {
  return std::clamp<int64_t>(causal.edge + 1, 0, rows);
}

bool softmax_tile_vec(float* s, int64_t rows, int64_t padded, int64_t width, cpu::CausalEdge causal, float scale,
                      float* max, float* sum, float* correction) {
  const D8 d;
  const V8 vscale = hn::Set(d, scale), minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  const int64_t whole = rows_seen_by_all(causal, rows) / 4 * 4;
  bool corrected = false;
  for (int64_t c = 0; c < width; c += kLanes) {
    float* column = s + c;
    const auto last = last_rows(causal, c);
    V8 m0 = minus_inf, m1 = minus_inf, m2 = minus_inf, m3 = minus_inf;
    for (int64_t r = 0; r < whole; r += 4) {
      m0 = hn::Max(m0, hn::Mul(vscale, hn::LoadU(d, column + r * width)));
      m1 = hn::Max(m1, hn::Mul(vscale, hn::LoadU(d, column + (r + 1) * width)));
      m2 = hn::Max(m2, hn::Mul(vscale, hn::LoadU(d, column + (r + 2) * width)));
      m3 = hn::Max(m3, hn::Mul(vscale, hn::LoadU(d, column + (r + 3) * width)));
    }
    for (int64_t r = whole; r < rows; ++r)
      m0 = hn::Max(m0, hn::IfThenElse(sees(last, r), hn::Mul(vscale, hn::LoadU(d, column + r * width)), minus_inf));
    const V8 old_max = hn::LoadU(d, max + c);
    const V8 m = hn::Max(old_max, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
    const V8 factor = vec_exp(hn::Sub(old_max, m));

    // Row r belongs to partial sum r % 4, so that unseen rows, being zeros, change nothing.
    V8 l[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int64_t r = 0; r < whole; r += 4) {
      float* at = column + r * width;
      const V8 p0 = vec_exp(hn::MulSub(vscale, hn::LoadU(d, at), m));
      const V8 p1 = vec_exp(hn::MulSub(vscale, hn::LoadU(d, at + width), m));
      const V8 p2 = vec_exp(hn::MulSub(vscale, hn::LoadU(d, at + 2 * width), m));
      const V8 p3 = vec_exp(hn::MulSub(vscale, hn::LoadU(d, at + 3 * width), m));
      hn::StoreU(p0, d, at);
      hn::StoreU(p1, d, at + width);
      hn::StoreU(p2, d, at + 2 * width);
      hn::StoreU(p3, d, at + 3 * width);
      l[0] = hn::Add(l[0], p0);
      l[1] = hn::Add(l[1], p1);
      l[2] = hn::Add(l[2], p2);
      l[3] = hn::Add(l[3], p3);
    }
    for (int64_t r = whole; r < rows; ++r) {
      float* at = column + r * width;
      const V8 p = hn::IfThenElseZero(sees(last, r), vec_exp(hn::MulSub(vscale, hn::LoadU(d, at), m)));
      hn::StoreU(p, d, at);
      l[r % 4] = hn::Add(l[r % 4], p);
    }
    for (int64_t r = rows; r < padded; ++r) hn::StoreU(hn::Zero(d), d, column + r * width);
    const V8 total = hn::Add(hn::Add(l[0], l[1]), hn::Add(l[2], l[3]));
    hn::StoreU(m, d, max + c);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + c), factor, total), d, sum + c);
    hn::StoreU(factor, d, correction + c);
    corrected |= !hn::AllTrue(d, hn::Eq(factor, hn::Set(d, 1.0f)));
  }
  return corrected;
}

void scale_columns_vec(float* x, int64_t rows, int64_t width, const float* factor) {
  const D8 d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; c += kLanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, x + r * width + c), hn::LoadU(d, factor + c)), d, x + r * width + c);
}

void score_gradient_by_column_vec(float* s, const float* dp, int64_t rows, int64_t padded, int64_t width,
                                  cpu::CausalEdge causal, float scale, const float* lse, const float* delta) {
  const D8 d;
  const V8 vscale = hn::Set(d, scale);
  const int64_t whole = rows_seen_by_all(causal, rows);
  for (int64_t c = 0; c < width; c += kLanes) {
    const auto last = last_rows(causal, c);
    const V8 vlse = hn::LoadU(d, lse + c), vdelta = hn::LoadU(d, delta + c);
    const auto gradient = [&](int64_t r) HWY_ATTR {
      const V8 p = vec_exp(hn::MulSub(vscale, hn::LoadU(d, s + r * width + c), vlse));
      return hn::Mul(p, hn::Sub(hn::LoadU(d, dp + r * width + c), vdelta));
    };
    for (int64_t r = 0; r < whole; ++r) hn::StoreU(gradient(r), d, s + r * width + c);
    for (int64_t r = whole; r < rows; ++r)
      hn::StoreU(hn::IfThenElseZero(sees(last, r), gradient(r)), d, s + r * width + c);
    for (int64_t r = rows; r < padded; ++r) hn::StoreU(hn::Zero(d), d, s + r * width + c);
  }
}

void score_gradient_by_row_vec(float* s, float* dp, int64_t rows, int64_t width, int64_t edge, float scale,
                               const float* lse, const float* delta) {
  const D8 d;
  const V8 vscale = hn::Set(d, scale);
  for (int64_t r = 0; r < rows; ++r) {
    const V8 vlse = hn::Set(d, lse[r]), vdelta = hn::Set(d, delta[r]);
    const auto last = hn::Set(D8Int(), clamp_edge(edge + r + 1));
    for (int64_t c = 0; c < width; c += kLanes) {
      float *s_at = s + r * width + c, *dp_at = dp + r * width + c;
      V8 p = vec_exp(hn::MulSub(vscale, hn::LoadU(d, s_at), vlse));
      V8 ds = hn::Mul(p, hn::Sub(hn::LoadU(d, dp_at), vdelta));
      if (c + kLanes - 1 > edge + r) {
        const auto seen = hn::RebindMask(d, hn::Lt(lane_index(c), last));
        p = hn::IfThenElseZero(seen, p);
        ds = hn::IfThenElseZero(seen, ds);
      }
      hn::StoreU(p, d, s_at);
      hn::StoreU(ds, d, dp_at);
    }
  }
}

float dot_vec(const ConstTensorView& a, const ConstTensorView& b, int64_t row, int64_t column, int64_t n) {
  return with_float_type(a.dtype, [&]<class TA>() {
    return with_float_type(b.dtype, [&]<class TB>() {
      const TA* x = a.row<TA>(row) + column;
      const TB* y = b.row<TB>(row) + column;
      return sum_vectors(n, [&](int64_t i, auto part, V8 acc)
                                HWY_ATTR { return hn::MulAdd(load(x + i, part), load(y + i, part), acc); });
    });
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bantam {
HWY_EXPORT(softmax_tile_vec);
HWY_EXPORT(scale_columns_vec);
HWY_EXPORT(score_gradient_by_column_vec);
HWY_EXPORT(score_gradient_by_row_vec);
HWY_EXPORT(dot_vec);

namespace cpu {

int64_t count_blocks(const int32_t* cu, int64_t num_seqs, int64_t columns) {
  int64_t n = 0;
  for (int64_t s = 0; s < num_seqs; ++s) n += (int64_t{cu[s + 1]} - cu[s] + columns - 1) / columns;
  return n;
}

SequenceBlock find_block(const int32_t* cu, int64_t columns, int64_t index) {
  for (int64_t s = 0;; ++s) {
    const int64_t length = int64_t{cu[s + 1]} - cu[s], blocks = (length + columns - 1) / columns;
    if (index < blocks) return {s, index * columns, std::min(columns, length - index * columns)};
    index -= blocks;
  }
}

int64_t heads_per_task(const Context& ctx, int64_t blocks, const AttentionShape& shape, int64_t limit) {
  const int64_t group = shape.heads / shape.kv_heads;
  int64_t heads = std::clamp<int64_t>(limit, 1, group);
  while (heads > 1 && blocks * shape.kv_heads * ((group + heads - 1) / heads) < 4 * ctx.num_threads())
    heads = (heads + 1) / 2;
  return heads;
}

bool softmax_tile(float* s, int64_t rows, int64_t padded, int64_t width, CausalEdge causal, float scale, float* max,
                  float* sum, float* correction) {
  return HWY_DYNAMIC_DISPATCH(softmax_tile_vec)(s, rows, padded, width, causal, scale, max, sum, correction);
}
void scale_columns(float* x, int64_t rows, int64_t width, const float* factor) {
  HWY_DYNAMIC_DISPATCH(scale_columns_vec)(x, rows, width, factor);
}
void score_gradient_by_column(float* s, const float* dp, int64_t rows, int64_t padded, int64_t width, CausalEdge causal,
                              float scale, const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(score_gradient_by_column_vec)(s, dp, rows, padded, width, causal, scale, lse, delta);
}
void score_gradient_by_row(float* s, float* dp, int64_t rows, int64_t width, int64_t edge, float scale,
                           const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(score_gradient_by_row_vec)(s, dp, rows, width, edge, scale, lse, delta);
}
float dot(const ConstTensorView& a, const ConstTensorView& b, int64_t row, int64_t column, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(dot_vec)(a, b, row, column, n);
}

void store_columns(const float* x, int64_t n, int64_t width, int64_t columns, const float* factor,
                   const TensorView& y) {
  with_float_type(y.dtype, [&]<class T>() {
    for (int64_t c = 0; c < columns; ++c) {
      T* out = y.row<T>(c);
      for (int64_t i = 0; i < n; ++i) out[i] = from_f32<T>(x[i * width + c] * factor[c]);
    }
  });
}

}  // namespace cpu
}  // namespace bantam
#endif
