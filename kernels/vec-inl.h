// SPDX-License-Identifier: Apache-2.0
// Shared pieces of the Highway kernels: eight floats at a time from f32 or bf16 memory, tails, fixed-order sums, exp.
// Results do not depend on the vector width: element-wise work is one lane per element, sums run in 32 fixed chains.
//
// Usage, in <op>_cpu.cc (each helper may be called in target code only, i.e. between HWY_BEFORE/AFTER_NAMESPACE):
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/<op>_cpu.cc"
//   #include "vec_targets.h"
//   #include "hwy/foreach_target.h"
//   #include "vec-inl.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace bantam::HWY_NAMESPACE {
//   template <class TX, class TY>
//   void scale_row(const TX* x, float s, TY* y, int64_t c) {
//     const V8 vs = hn::Set(D8(), s);
//     for_vectors(c, [&](int64_t i, auto n) HWY_ATTR { store(hn::Mul(load(x + i, n), vs), y + i, n); });
//   }
//   float squares(const float* x, int64_t c) {
//     return sum_vectors(c, [&](int64_t i, auto n, V8 acc) HWY_ATTR {
//       const V8 v = load(x + i, n);
//       return hn::MulAdd(v, v, acc);
//     });
//   }
//   }  // namespace
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE  ... HWY_EXPORT(f); cpu::op() calls HWY_DYNAMIC_DISPATCH(f)(...) from inside parallel_for ... #endif
#include <cstdint>

#include "dtype.h"
#include "hwy/highway.h"

// Highway's per-target include guard.
#if defined(BANTAM_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BANTAM_VEC_INL_H_
#undef BANTAM_VEC_INL_H_
#else
#define BANTAM_VEC_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D8 = hn::CappedTag<float, 8>;
using V8 = hn::Vec<D8>;
using D8Int = hn::RebindToSigned<D8>;
using D8Bits = hn::RebindToUnsigned<D8>;
using D8Half = hn::Rebind<uint16_t, D8>;
/// 8, or less where the machine's vectors are shorter.
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D8()));
inline constexpr int64_t kChains = 32;

/// How many elements a vector at some index stands for: all lanes, or the first `count` (1 <= count < kLanes).
struct FullVector {};
struct PartVector {
  int64_t count;
};

// bf16 bits <-> f32 lanes. Rounding is to nearest even, NaN stays NaN, as to_bf16() does.
HWY_INLINE V8 widen(hn::Vec<D8Half> bits) {
  return hn::BitCast(D8(), hn::ShiftLeft<16>(hn::PromoteTo(D8Bits(), bits)));
}
HWY_INLINE hn::Vec<D8Half> narrow(V8 v) {
  const D8Bits du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40));
  const auto bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  return hn::DemoteTo(D8Half(), hn::BitCast(D8Int(), bits));
}

HWY_INLINE V8 load(const float* p, FullVector) {
  return hn::LoadU(D8(), p);
}
HWY_INLINE V8 load(const bf16* p, FullVector) {
  return widen(hn::LoadU(D8Half(), reinterpret_cast<const uint16_t*>(p)));
}
/// Lanes past `count` are 0; nothing past p[count - 1] is read.
template <class T>
HWY_INLINE V8 load(const T* p, PartVector n) {
  T buffer[kLanes] = {};
  for (int64_t i = 0; i < n.count; ++i) buffer[i] = p[i];
  return load(buffer, FullVector());
}
HWY_INLINE void store(V8 v, float* p, FullVector) {
  hn::StoreU(v, D8(), p);
}
HWY_INLINE void store(V8 v, bf16* p, FullVector) {
  hn::StoreU(narrow(v), D8Half(), reinterpret_cast<uint16_t*>(p));
}
template <class T>
HWY_INLINE void store(V8 v, T* p, PartVector n) {
  T buffer[kLanes];
  store(v, buffer, FullVector());
  for (int64_t i = 0; i < n.count; ++i) p[i] = buffer[i];
}
/// p = v, or p += v when kAdd (one rounding to T).
template <bool kAdd, class T, class N>
HWY_INLINE void put(V8 v, T* p, N n) {
  store(kAdd ? hn::Add(load(p, n), v) : v, p, n);
}

/// f(i, n) for the vectors of [0, c); n is FullVector, but PartVector for a short last one.
template <class F>
HWY_INLINE void for_vectors(int64_t c, F f) {
  int64_t i = 0;
  for (; i + kLanes <= c; i += kLanes) f(i, FullVector());
  if (i < c) f(i, PartVector{c - i});
}

/// Sum over [0, c): element i belongs to chain i % 32, chains advance by acc = f(i, n, acc) in order of i, and are then
/// added as a fixed tree. Lanes past the end of a PartVector must leave acc as it is (load() gives zeros there).
template <class F>
HWY_INLINE float sum_vectors(int64_t c, F f) {
  constexpr int64_t kParts = kChains / kLanes;
  V8 acc[kParts];
  for (int64_t k = 0; k < kParts; ++k) acc[k] = hn::Zero(D8());
  int64_t i = 0;
  for (; i + kChains <= c; i += kChains)
    for (int64_t k = 0; k < kParts; ++k) acc[k] = f(i + k * kLanes, FullVector(), acc[k]);
#pragma GCC unroll 32
  for (int64_t k = 0; k < kParts; ++k, i += kLanes)
    if (i < c) acc[k] = i + kLanes <= c ? f(i, FullVector(), acc[k]) : f(i, PartVector{c - i}, acc[k]);
  float chain[kChains];
  for (int64_t k = 0; k < kParts; ++k) hn::StoreU(acc[k], D8(), chain + k * kLanes);
  for (int64_t half = kChains / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) chain[k] += chain[k + half];
  return chain[0];
}

/// Greatest of x[0 .. c), c >= 1. A NaN may or may not win: sums that follow must catch it.
template <class T>
HWY_INLINE float max_of(const T* x, int64_t c) {
  float lanes[kLanes];
  float best = to_f32(x[0]);
  if (c >= kLanes) {
    V8 m = load(x, FullVector());
    for (int64_t i = kLanes; i + kLanes <= c; i += kLanes) m = hn::Max(m, load(x + i, FullVector()));
    hn::StoreU(m, D8(), lanes);
    for (int64_t k = 0; k < kLanes; ++k) best = best < lanes[k] ? lanes[k] : best;
  }
  for (int64_t i = c / kLanes * kLanes; i < c; ++i) best = best < to_f32(x[i]) ? to_f32(x[i]) : best;
  return best;
}

/// e^x for every float: within 1 ulp, denormals included; inf, 0 and NaN as they should.
/// x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 P(r), P minimax.
HWY_INLINE V8 vec_exp(V8 x) {
  const D8 d;
  const D8Int di;
  // Past the bounds the result is 0 or inf all the same; inside them n fits two factors 2^(n/2).
  const V8 c = hn::Min(hn::Max(x, hn::Set(d, -105.0f)), hn::Set(d, 90.0f));
  const V8 n = hn::Round(hn::Mul(c, hn::Set(d, 1.44269504f)));
  V8 r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), c);  // 15 bits: n times it is exact
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-06f), r);
  V8 p = hn::MulAdd(hn::Set(d, 0.000197903431f), r, hn::Set(d, 0.00139446603f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00833349675f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416662954f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166666657f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  const auto ni = hn::ConvertTo(di, n);
  const auto n1 = hn::ShiftRight<1>(ni), n2 = hn::Sub(ni, n1);
  const auto bias = hn::Set(di, 127);
  const V8 s1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n1, bias)));
  const V8 s2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n2, bias)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(hn::Mul(p, s1), s2));
}

/// s = 1 / (1 + e^-x) and t = 1 - s = 1 / (1 + e^x), both within 3 ulp, without cancellation or overflow.
struct Sigmoid {
  V8 s, t;
};
HWY_INLINE Sigmoid vec_sigmoid(V8 x) {
  const V8 one = hn::Set(D8(), 1.0f);
  const V8 e = vec_exp(hn::Neg(hn::Abs(x)));
  const V8 large = hn::Div(one, hn::Add(one, e)), small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(D8()));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

/// tanh x within 1.5 ulp: an odd polynomial near 0, else 1 - 2 / (e^2|x| + 1).
HWY_INLINE V8 vec_tanh(V8 x) {
  const D8 d;
  const V8 a = hn::Abs(x), z = hn::Mul(x, x);
  V8 p = hn::MulAdd(hn::Set(d, -0.00628247112f), z, hn::Set(d, 0.0210777584f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.0538538583f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.133326024f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.333333194f));
  const V8 near = hn::MulAdd(hn::Mul(p, z), x, x);
  const V8 one = hn::Set(d, 1.0f);
  const V8 far = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(vec_exp(hn::Add(a, a)), one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.55f)), near, far), x);
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
