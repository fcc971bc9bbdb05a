// SPDX-License-Identifier: Apache-2.0
// One AdamW step of one parameter, scalar.
#pragma once
#include <cmath>

namespace bantam::reference {

template <class S>
struct AdamwState {
  S param, m, v;
};
template <class S>
AdamwState<S> adamw(AdamwState<S> s, S grad, double step, double lr, double beta1, double beta2, double eps,
                    double weight_decay) {
  s.param *= S(1 - lr * weight_decay);
  s.m = S(beta1) * s.m + S(1 - beta1) * grad;
  s.v = S(beta2) * s.v + S(1 - beta2) * grad * grad;
  const S m_hat = s.m / S(1 - std::pow(beta1, step)), v_hat = s.v / S(1 - std::pow(beta2, step));
  s.param -= S(lr) * m_hat / (std::sqrt(v_hat) + S(eps));
  return s;
}

}  // namespace bantam::reference
