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

// Rows that a lane sees: before < r <= last.
struct LaneRows {
  hn::Vec<D8Int> before, last;
  HWY_INLINE LaneRows(cpu::Band band, int64_t c) {
    last = hn::Set(D8Int(), clamp_edge(band.edge));
    before = hn::Set(D8Int(), clamp_edge(band.edge - band.window));
    if (band.slope) {
      last = hn::Add(last, lane_index(c));
      before = hn::Add(before, lane_index(c));
    }
  }
  HWY_INLINE hn::Mask<D8> see(int64_t r) const {
    const auto row = hn::Set(D8Int(), static_cast<int32_t>(r));
    return hn::RebindMask(D8(), hn::AndNot(hn::Gt(row, last), hn::Gt(row, before)));
  }
};

// The rows [begin, end) that every lane sees; multiples of `step` apart from 0, or none.
struct WholeRows {
  int64_t begin, end;
  HWY_INLINE WholeRows(cpu::Band band, int64_t rows, int64_t width, int64_t step) {
    end = std::clamp<int64_t>(band.edge + 1, 0, rows) / step * step;
    begin = std::max<int64_t>(band.edge + (width - 1) * band.slope - band.window + 1, 0);
    begin = std::min((begin + step - 1) / step * step, end);
  }
};

// s = softcap * tanh(scale * s / softcap).
void cap_scores(float* s, int64_t n, cpu::ScoreRule rule) {
  const D8 d;
  const V8 ratio = hn::Set(d, rule.scale / rule.softcap), cap = hn::Set(d, rule.softcap);
  for (int64_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Mul(cap, vec_tanh(hn::Mul(ratio, hn::LoadU(d, s + i)))), d, s + i);
}

bool softmax_tile_vec(float* s, int64_t rows, int64_t padded, int64_t width, cpu::Band band, cpu::ScoreRule rule,
                      float* max, float* sum, float* correction) {
  const D8 d;
  if (rule.softcap > 0) cap_scores(s, rows * width, rule);
  const V8 vscale = hn::Set(d, rule.softcap > 0 ? 1.0f : rule.scale);
  const V8 minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
  const WholeRows whole(band, rows, width, 4);
  bool corrected = false;
  for (int64_t c = 0; c < width; c += kLanes) {
    float* column = s + c;
    const LaneRows lanes(band, c);
    V8 m0 = minus_inf, m1 = minus_inf, m2 = minus_inf, m3 = minus_inf;
    const auto masked_max = [&](int64_t r) HWY_ATTR {
      m0 = hn::Max(m0, hn::IfThenElse(lanes.see(r), hn::Mul(vscale, hn::LoadU(d, column + r * width)), minus_inf));
    };
    for (int64_t r = 0; r < whole.begin; ++r) masked_max(r);
    for (int64_t r = whole.begin; r < whole.end; r += 4) {
      m0 = hn::Max(m0, hn::Mul(vscale, hn::LoadU(d, column + r * width)));
      m1 = hn::Max(m1, hn::Mul(vscale, hn::LoadU(d, column + (r + 1) * width)));
      m2 = hn::Max(m2, hn::Mul(vscale, hn::LoadU(d, column + (r + 2) * width)));
      m3 = hn::Max(m3, hn::Mul(vscale, hn::LoadU(d, column + (r + 3) * width)));
    }
    for (int64_t r = whole.end; r < rows; ++r) masked_max(r);
    const V8 old_max = hn::LoadU(d, max + c);
    const V8 new_max = hn::Max(old_max, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)));
    // A lane that has seen no row yet has no maximum: any finite one leaves its zeros as they are.
    const V8 m = hn::IfThenElse(hn::Eq(new_max, minus_inf), hn::Zero(d), new_max);
    const V8 factor = vec_exp(hn::Sub(old_max, m));

    // Row r belongs to partial sum r % 4, so that unseen rows, being zeros, change nothing.
    V8 l[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    const auto masked_exp = [&](int64_t r) HWY_ATTR {
      float* at = column + r * width;
      const V8 p = hn::IfThenElseZero(lanes.see(r), vec_exp(hn::MulSub(vscale, hn::LoadU(d, at), m)));
      hn::StoreU(p, d, at);
      l[r % 4] = hn::Add(l[r % 4], p);
    };
    for (int64_t r = 0; r < whole.begin; ++r) masked_exp(r);
    for (int64_t r = whole.begin; r < whole.end; r += 4) {
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
    for (int64_t r = whole.end; r < rows; ++r) masked_exp(r);
    for (int64_t r = rows; r < padded; ++r) hn::StoreU(hn::Zero(d), d, column + r * width);
    const V8 total = hn::Add(hn::Add(l[0], l[1]), hn::Add(l[2], l[3]));
    hn::StoreU(new_max, d, max + c);
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

// p = exp(score - lse) and the gradient of the score over scale, p * (dp - delta) times the slope of the softcap.
struct ScoreGradient {
  V8 p, ds;
};
template <bool kCapped>
HWY_INLINE ScoreGradient score_gradient(V8 x, V8 dp, V8 scale, V8 softcap, V8 lse, V8 delta) {
  if constexpr (kCapped) {
    const V8 t = vec_tanh(hn::Mul(scale, x));  // scale is over softcap already
    const V8 p = vec_exp(hn::MulSub(softcap, t, lse));
    return {p, hn::Mul(hn::Mul(p, hn::Sub(dp, delta)), hn::NegMulAdd(t, t, hn::Set(D8(), 1.0f)))};
  } else {
    const V8 p = vec_exp(hn::MulSub(scale, x, lse));
    return {p, hn::Mul(p, hn::Sub(dp, delta))};
  }
}

template <bool kCapped>
HWY_INLINE void gradient_by_column(float* s, const float* dp, int64_t rows, int64_t padded, int64_t width,
                                   cpu::Band band, cpu::ScoreRule rule, const float* lse, const float* delta) {
  const D8 d;
  const V8 vscale = hn::Set(d, kCapped ? rule.scale / rule.softcap : rule.scale), vcap = hn::Set(d, rule.softcap);
  const WholeRows whole(band, rows, width, 1);
  for (int64_t c = 0; c < width; c += kLanes) {
    const LaneRows lanes(band, c);
    const V8 vlse = hn::LoadU(d, lse + c), vdelta = hn::LoadU(d, delta + c);
    const auto gradient = [&](int64_t r) HWY_ATTR {
      const V8 x = hn::LoadU(d, s + r * width + c), vdp = hn::LoadU(d, dp + r * width + c);
      return score_gradient<kCapped>(x, vdp, vscale, vcap, vlse, vdelta).ds;
    };
    const auto masked = [&](int64_t begin, int64_t end) HWY_ATTR {
      for (int64_t r = begin; r < end; ++r)
        hn::StoreU(hn::IfThenElseZero(lanes.see(r), gradient(r)), d, s + r * width + c);
    };
    masked(0, whole.begin);
    for (int64_t r = whole.begin; r < whole.end; ++r) hn::StoreU(gradient(r), d, s + r * width + c);
    masked(whole.end, rows);
    for (int64_t r = rows; r < padded; ++r) hn::StoreU(hn::Zero(d), d, s + r * width + c);
  }
}
void score_gradient_by_column_vec(float* s, const float* dp, int64_t rows, int64_t padded, int64_t width,
                                  cpu::Band band, cpu::ScoreRule rule, const float* lse, const float* delta) {
  if (rule.softcap > 0)
    gradient_by_column<true>(s, dp, rows, padded, width, band, rule, lse, delta);
  else
    gradient_by_column<false>(s, dp, rows, padded, width, band, rule, lse, delta);
}

template <bool kCapped>
HWY_INLINE void gradient_by_row(float* s, float* dp, int64_t rows, int64_t width, cpu::Band band, cpu::ScoreRule rule,
                                const float* lse, const float* delta) {
  const D8 d;
  const V8 vscale = hn::Set(d, kCapped ? rule.scale / rule.softcap : rule.scale), vcap = hn::Set(d, rule.softcap);
  for (int64_t r = 0; r < rows; ++r) {
    const V8 vlse = hn::Set(d, lse[r]), vdelta = hn::Set(d, delta[r]);
    const int64_t edge = band.edge + r, before = edge - band.window;
    const auto last = hn::Set(D8Int(), clamp_edge(edge)), first = hn::Set(D8Int(), clamp_edge(before));
    for (int64_t c = 0; c < width; c += kLanes) {
      float *s_at = s + r * width + c, *dp_at = dp + r * width + c;
      auto [p, ds] = score_gradient<kCapped>(hn::LoadU(d, s_at), hn::LoadU(d, dp_at), vscale, vcap, vlse, vdelta);
      if (c + kLanes - 1 > edge || c <= before) {
        const auto lane = lane_index(c);
        const auto seen = hn::RebindMask(d, hn::AndNot(hn::Gt(lane, last), hn::Gt(lane, first)));
        p = hn::IfThenElseZero(seen, p);
        ds = hn::IfThenElseZero(seen, ds);
      }
      hn::StoreU(p, d, s_at);
      hn::StoreU(ds, d, dp_at);
    }
  }
}
void score_gradient_by_row_vec(float* s, float* dp, int64_t rows, int64_t width, cpu::Band band, cpu::ScoreRule rule,
                               const float* lse, const float* delta) {
  if (rule.softcap > 0)
    gradient_by_row<true>(s, dp, rows, width, band, rule, lse, delta);
  else
    gradient_by_row<false>(s, dp, rows, width, band, rule, lse, delta);
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

bool softmax_tile(float* s, int64_t rows, int64_t padded, int64_t width, Band band, ScoreRule rule, float* max,
                  float* sum, float* correction) {
  return HWY_DYNAMIC_DISPATCH(softmax_tile_vec)(s, rows, padded, width, band, rule, max, sum, correction);
}
void scale_columns(float* x, int64_t rows, int64_t width, const float* factor) {
  HWY_DYNAMIC_DISPATCH(scale_columns_vec)(x, rows, width, factor);
}
void score_gradient_by_column(float* s, const float* dp, int64_t rows, int64_t padded, int64_t width, Band band,
                              ScoreRule rule, const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(score_gradient_by_column_vec)(s, dp, rows, padded, width, band, rule, lse, delta);
}
void score_gradient_by_row(float* s, float* dp, int64_t rows, int64_t width, Band band, ScoreRule rule,
                           const float* lse, const float* delta) {
  HWY_DYNAMIC_DISPATCH(score_gradient_by_row_vec)(s, dp, rows, width, band, rule, lse, delta);
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
