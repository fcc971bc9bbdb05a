// SPDX-License-Identifier: Apache-2.0
// Gated activations of one element, scalar: S is float, double or complex<double>.
#pragma once
#include <cmath>
#include <complex>

#include "kernels/gated_act.h"

namespace bantam::reference {

inline constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

template <class S>
S sigmoid(S x) {
  return S(1) / (S(1) + std::exp(-x));
}
/// gelu_tanh is 0.5 x (1 + tanh u), u = kGeluScale (x + kGeluCubic x^3); 0.5 (1 + tanh u) = sigmoid(2u) does not
/// cancel.
template <class S>
S gelu_two_u(S x) {
  return S(2 * kGeluScale) * (x + S(kGeluCubic) * x * x * x);
}
template <class S>
S activate(Act act, S x) {
  return x * sigmoid(act == Act::silu ? x : gelu_two_u(x));
}
template <class S>
S activate_slope(Act act, S x) {
  const S z = act == Act::silu ? x : gelu_two_u(x);
  const S dz = act == Act::silu ? S(1) : S(2 * kGeluScale) * (S(1) + S(3 * kGeluCubic) * x * x);
  return sigmoid(z) + x * sigmoid(z) * sigmoid(-z) * dz;
}
template <class S>
S gated_act(Act act, S gate, S up) {
  return activate(act, gate) * up;
}

}  // namespace bantam::reference
