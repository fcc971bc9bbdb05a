// SPDX-License-Identifier: Apache-2.0
// The tolerances of the kernel tests, in one place. An error bound is
//   units * 2^-24 * scale  +  half a step of the stored dtype,
// scale being the sum of the absolute values of the terms that the result is made of. `units` counts roundings on the
// longest path, as derived here; a number grows only in a commit that names the cause.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/dtype.h"

namespace bantam::tolerance {

inline constexpr double kF32 = 0x1p-24;    // unit roundoff of f32
inline constexpr double kBf16 = 0x1p-8;    // of bf16
inline constexpr double kTiny = 0x1p-149;  // smallest step of f32

/// Half a step of a value stored as `t`.
inline double stored(DType t, double value) {
  return t == DType::bf16 ? std::abs(value) * kBf16 + 0x1p-134 : std::abs(value) * kF32 + kTiny;
}

/// A sum of c terms in 32 chains and a tree of 5: each term passes that many additions, and one fused product.
constexpr double sum(int64_t c) {
  return static_cast<double>((c + 31) / 32 + 5 + 1);
}

/// rstd: half of the sum's error (square root), division, root, reciprocal, mean, + eps.
constexpr double rms_norm_rstd(int64_t c) {
  return sum(c) / 2 + 4;
}
/// y: rstd and two products.
constexpr double rms_norm(int64_t c) {
  return rms_norm_rstd(c) + 2;
}
/// dx: the sum, three roundings of `along`, twice the error of rstd inside and once outside, three more products.
constexpr double rms_norm_dx(int64_t c) {
  return sum(c) + 3 + 3 * rms_norm_rstd(c) + 4;
}
/// dweight: at most 64 additions in a slice, then one per slice, and the product with rstd.
constexpr double rms_norm_dweight(int64_t t) {
  return 64 + static_cast<double>((t + 63) / 64) + 3;
}

/// rope: two products, one of them fused.
inline constexpr double kRope = 2;

/// attention: error of a row against its norm, in the 2-norm. In f32, scores are chains of head_dim products (an error
/// of ~ sqrt(head_dim) * 2^-24 of values up to ~3, which exp turns into a relative one), sums over keys are chains of
/// 128: this is about four times what is measured.
inline constexpr double kAttention = 2e-6, kAttentionBackward = 4e-6;
/// Tensor cores cut their sums off where f32 rounds them: twice the error of a score.
inline constexpr double kAttentionMmaScore = 2 * kAttention;
/// With bf16 products p (in o and dv) or ds (in dq and dk) is rounded as an operand: half a step of each term, of
/// either sign, so a row of o or dv moves by less than that of its norm. The ds of a query add up to 0, so rows of dq
/// are differences: two keys at right angles have 2 / sqrt(2) of the difference's norm, hence two steps. A dout of f32
/// is rounded as well.
inline constexpr double kAttentionP = kBf16, kAttentionDs = 2 * kBf16, kAttentionDout = kBf16;

/// silu: sigmoid within 3 ulp (6 units), two products. Slope: two sigmoids, three products, one more with dy and up.
inline constexpr double kSilu = 6 + 2;
inline constexpr double kSiluSlope = 2 * 6 + 5;
/// gelu_tanh: the argument 2u has 4 roundings, so the sigmoid moves by 4 |2u| units more (see gelu_units).
inline double gelu_units(double two_u) {
  return kSilu + 4 * std::abs(two_u);
}
inline double gelu_slope_units(double two_u) {
  return kSiluSlope + 3 + 2 * 4 * std::abs(two_u);
}

/// dropout: 1 / (1 - p) takes two roundings, the product one.
inline constexpr double kDropout = 3;

/// adamw: m and v are two products and a sum (v squares a scaled gradient), the quotient adds eight more.
inline constexpr double kAdamwM = 5, kAdamwV = 7;
inline constexpr double kAdamwUpdate = kAdamwM + kAdamwV / 2 + 8;

/// grad_norm sums f64: 65,536 / 16 + 4 additions in a slice, each 2^-53.
constexpr double grad_norm(int64_t n) {
  return (4096 + 4 + static_cast<double>((n + 65535) / 65536)) * 0x1p-53;
}

}  // namespace bantam::tolerance
