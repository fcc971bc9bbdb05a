// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of one head of one token, scalar: S is float, double or complex<double>.
#pragma once
#include <vector>

namespace bantam::reference {

template <class S>
std::vector<S> rope(const std::vector<S>& x, const std::vector<double>& cos, const std::vector<double>& sin,
                    bool inverse) {
  const size_t half = x.size() / 2;
  std::vector<S> y(x.size());
  for (size_t i = 0; i < half; ++i) {
    const S c(cos[i]), s(inverse ? -sin[i] : sin[i]);
    y[i] = x[i] * c - x[i + half] * s;
    y[i + half] = x[i + half] * c + x[i] * s;
  }
  return y;
}

}  // namespace bantam::reference
