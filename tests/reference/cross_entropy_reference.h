// SPDX-License-Identifier: Apache-2.0
// Cross entropy of a linear head, written plainly over any scalar, and its gradient in double. See
// attention_reference.h for what the scalars are for.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

namespace bantam::reference {

namespace cross_entropy_detail {
inline double real_of(double x) {
  return x;
}
inline double real_of(const std::complex<double>& x) {
  return x.real();
}
}  // namespace cross_entropy_detail

template <class T>
struct CrossEntropyOutput {
  std::vector<T> loss, lse;
};

/// hidden [T, C], head [V, C]; rows whose label is negative are not trained: zeros.
template <class T>
CrossEntropyOutput<T> cross_entropy(const std::vector<T>& hidden, const std::vector<int32_t>& labels,
                                    const std::vector<double>& head, int64_t c) {
  const auto vocab = static_cast<int64_t>(head.size()) / c;
  CrossEntropyOutput<T> out{std::vector<T>(labels.size()), std::vector<T>(labels.size())};
  std::vector<T> logits(static_cast<size_t>(vocab));
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] < 0) continue;
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < vocab; ++j) {
      T sum = 0;
      for (int64_t i = 0; i < c; ++i) sum += hidden[t * c + i] * head[j * c + i];
      logits[j] = sum;
      max = std::max(max, cross_entropy_detail::real_of(sum));
    }
    T sum = 0;
    for (const T& x : logits) sum += std::exp(x - max);
    out.lse[t] = max + std::log(sum);
    out.loss[t] = out.lse[t] - logits[labels[t]];
  }
  return out;
}

/// [T, C]: gradient of sum_t weight[t] * loss[t].
inline std::vector<double> cross_entropy_backward(const std::vector<double>& hidden, const std::vector<int32_t>& labels,
                                                  const std::vector<float>& weights, const std::vector<double>& head,
                                                  int64_t c, const CrossEntropyOutput<double>& forward) {
  const auto vocab = static_cast<int64_t>(head.size()) / c;
  std::vector<double> g(hidden.size());
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] < 0) continue;
    for (int64_t j = 0; j < vocab; ++j) {
      double logit = 0;
      for (int64_t i = 0; i < c; ++i) logit += hidden[t * c + i] * head[j * c + i];
      const double p = std::exp(logit - forward.lse[t]) - (j == labels[t] ? 1 : 0);
      for (int64_t i = 0; i < c; ++i) g[t * c + i] += weights[t] * p * head[j * c + i];
    }
  }
  return g;
}

}  // namespace bantam::reference
