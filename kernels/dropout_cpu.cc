// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dropout.h"
#include "philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout_cpu.cc"
#include "vec_targets.h"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

// Uniforms of channels [begin, begin + kDraw) of a row, into u.
constexpr int64_t kDraw = 4 * kLanes;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void draw(const DropoutArgs& a, int64_t t, int64_t begin, float* u) {
  const auto bits = dropout_bits(a.row_key[t], a.position[t], a.layer, a.site, static_cast<uint32_t>(begin / 4));
  for (int k = 0; k < 4; ++k) u[k] = dropout_uniform(bits.word[k]);
}
#else
using VBits = hn::Vec<D8Bits>;
// 32 x 32 -> 64 bit products of all lanes with m, as high and low words.
HWY_INLINE void multiply_wide(VBits a, VBits m, VBits& high, VBits& low) {
  const D8Bits d;
  const hn::Repartition<uint64_t, D8Bits> d64;
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), m);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}
HWY_INLINE V8 uniform(VBits bits) {
  return hn::Mul(hn::ConvertTo(D8(), hn::BitCast(D8Int(), hn::ShiftRight<8>(bits))), hn::Set(D8(), 0x1p-24f));
}
// philox4x32 of kLanes counters at once: lane k holds the counter of channels begin + 4k .. begin + 4k + 3.
HWY_INLINE void draw(const DropoutArgs& a, int64_t t, int64_t begin, float* u) {
  const D8Bits d;
  const VBits m0 = hn::Set(d, kPhiloxM0), m1 = hn::Set(d, kPhiloxM1);
  VBits key0 = hn::Set(d, static_cast<uint32_t>(a.row_key[t]));
  VBits key1 = hn::Set(d, static_cast<uint32_t>(a.row_key[t] >> 32));
  VBits c0 = hn::Set(d, static_cast<uint32_t>(a.position[t]));
  VBits c1 = hn::Iota(d, static_cast<uint32_t>(begin / 4));
  VBits c2 = hn::Set(d, static_cast<uint32_t>(a.layer) << 16 | static_cast<uint32_t>(a.site));
  VBits c3 = hn::Zero(d);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    VBits high0, low0, high1, low1;
    multiply_wide(c0, m0, high0, low0);
    multiply_wide(c2, m1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), key0);
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), key1);
    c3 = low0;
    key0 = hn::Add(key0, hn::Set(d, kPhiloxW0));
    key1 = hn::Add(key1, hn::Set(d, kPhiloxW1));
  }
  hn::StoreInterleaved4(uniform(c0), uniform(c1), uniform(c2), uniform(c3), D8(), u);
}
#endif

template <class TX, class TY, bool kAdd>
void drop_rows(const DropoutArgs& a, int64_t begin, int64_t end) {
  const V8 zero = hn::Zero(D8()), p = hn::Set(D8(), a.p), scale = hn::Set(D8(), 1.0f / (1.0f - a.p));
  for (int64_t t = begin; t < end; ++t)
    for (int64_t c = 0; c < a.x.cols; c += kDraw) {
      HWY_ALIGN float u[kDraw];
      if (a.p > 0)
        draw(a, t, c, u);
      else
        std::fill_n(u, kDraw, 0.0f);
      const TX* x = a.x.row<TX>(t) + c;
      TY* y = a.y.row<TY>(t) + c;
      for_vectors(std::min(kDraw, a.x.cols - c), [&](int64_t i, auto n) HWY_ATTR {
        const auto kept = hn::Ge(hn::LoadU(D8(), u + i), p);
        put<kAdd>(hn::IfThenElse(kept, hn::Mul(load(x + i, n), scale), zero), y + i, n);
      });
    }
}
void dropout_rows(const DropoutArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.x.dtype, [&]<class TX>() {
    with_float_type(a.y.dtype, [&]<class TY>() {
      if (a.mode == GradMode::add)
        drop_rows<TX, TY, true>(a, begin, end);
      else
        drop_rows<TX, TY, false>(a, begin, end);
    });
  });
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu_ops.h"

namespace bantam {

HWY_EXPORT(dropout_rows);

void cpu::dropout(Context& ctx, const DropoutArgs& args) {
  parallel_for(ctx, args.x.rows, rows_per_piece(args.x.cols), [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(dropout_rows)(args, begin, end);
  });
}

}  // namespace bantam
#endif
