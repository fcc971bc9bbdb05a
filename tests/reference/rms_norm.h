// SPDX-License-Identifier: Apache-2.0
// One row of RMS normalisation, scalar: S is float, double or complex<double> (for the complex step).
#pragma once
#include <cmath>
#include <complex>
#include <vector>

namespace bantam::reference {

template <class S>
S rms_norm_rstd(const std::vector<S>& x, double eps) {
  S squares{};
  for (const S& v : x) squares += v * v;
  return S(1) / std::sqrt(squares / S(static_cast<double>(x.size())) + S(eps));
}

template <class S>
std::vector<S> rms_norm(const std::vector<S>& x, const std::vector<S>& weight, double eps) {
  const S rstd = rms_norm_rstd(x, eps);
  std::vector<S> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * rstd * weight[i];
  return y;
}

/// dx is written, dweight added to.
template <class S>
void rms_norm_backward(const std::vector<S>& x, const std::vector<S>& weight, const std::vector<S>& dy, double eps,
                       std::vector<S>& dx, std::vector<S>& dweight) {
  const S rstd = rms_norm_rstd(x, eps);
  S dot{};
  for (size_t i = 0; i < x.size(); ++i) dot += weight[i] * dy[i] * x[i];
  const S along = dot / S(static_cast<double>(x.size())) * rstd * rstd;
  for (size_t i = 0; i < x.size(); ++i) {
    dx[i] = rstd * (weight[i] * dy[i] - x[i] * along);
    dweight[i] += dy[i] * x[i] * rstd;
  }
}

}  // namespace bantam::reference
