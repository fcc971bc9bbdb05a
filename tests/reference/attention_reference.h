// SPDX-License-Identifier: Apache-2.0
// Attention and its gradients, written plainly for one packed batch, over any scalar: double is the oracle of the
// kernels, std::complex<double> checks the gradients by the complex step.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

namespace bantam::reference {

struct AttentionShape {
  std::vector<int32_t> cu_q, cu_k;
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  double scale = 1;
  int64_t window = 0;  // 0: none
  double softcap = 0;  // 0: none
  int64_t queries() const { return cu_q.back(); }
  int64_t keys() const { return cu_k.back(); }
};

inline double real_part(double x) {
  return x;
}
inline double real_part(const std::complex<double>& x) {
  return x.real();
}

template <class T>
struct AttentionOutput {
  std::vector<T> o, lse;
};

/// Calls f(query row, query head, first key row, number of keys seen, key head).
template <class F>
void for_each_query(const AttentionShape& s, F f) {
  for (size_t seq = 0; seq + 1 < s.cu_q.size(); ++seq) {
    const int64_t nq = s.cu_q[seq + 1] - s.cu_q[seq], nk = s.cu_k[seq + 1] - s.cu_k[seq];
    for (int64_t i = 0; i < nq; ++i)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t all = nk - nq + i + 1, seen = s.window > 0 && s.window < all ? s.window : all;
        f(s.cu_q[seq] + i, h, s.cu_k[seq] + all - seen, seen, h / (s.heads / s.kv_heads));
      }
  }
}

template <class T>
T score_of(const AttentionShape& s, const T* q, const T* k) {
  T sum = 0;
  for (int64_t i = 0; i < s.head_dim; ++i) sum += q[i] * k[i];
  return s.softcap > 0 ? s.softcap * std::tanh(s.scale * sum / s.softcap) : s.scale * sum;
}

/// q [Tq, heads * d], k and v [Tk, kv_heads * d]; o like q, lse [Tq, heads].
template <class T>
AttentionOutput<T> attention(const AttentionShape& s, const std::vector<T>& q, const std::vector<T>& k,
                             const std::vector<T>& v) {
  const int64_t d = s.head_dim, width = s.heads * d, kv_width = s.kv_heads * d;
  AttentionOutput<T> out{std::vector<T>(static_cast<size_t>(s.queries() * width)),
                         std::vector<T>(static_cast<size_t>(s.queries() * s.heads))};
  for_each_query(s, [&](int64_t row, int64_t h, int64_t key0, int64_t keys, int64_t kv) {
    std::vector<T> score(static_cast<size_t>(keys));
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < keys; ++j) {
      score[j] = score_of(s, &q[row * width + h * d], &k[(key0 + j) * kv_width + kv * d]);
      max = std::max(max, real_part(score[j]));
    }
    T sum = 0;
    for (T& x : score) sum += x = std::exp(x - max);
    out.lse[row * s.heads + h] = max + std::log(sum);
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t i = 0; i < d; ++i)
        out.o[row * width + h * d + i] += score[j] / sum * v[(key0 + j) * kv_width + kv * d + i];
  });
  return out;
}

struct AttentionGradients {
  std::vector<double> dq, dk, dv;
};

inline AttentionGradients attention_backward(const AttentionShape& s, const std::vector<double>& q,
                                             const std::vector<double>& k, const std::vector<double>& v,
                                             const AttentionOutput<double>& forward, const std::vector<double>& dout) {
  const int64_t d = s.head_dim, width = s.heads * d, kv_width = s.kv_heads * d;
  AttentionGradients g{std::vector<double>(q.size()), std::vector<double>(k.size()), std::vector<double>(v.size())};
  for_each_query(s, [&](int64_t row, int64_t h, int64_t key0, int64_t keys, int64_t kv) {
    const int64_t at = row * width + h * d;
    double delta = 0;
    for (int64_t i = 0; i < d; ++i) delta += dout[at + i] * forward.o[at + i];
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t key = (key0 + j) * kv_width + kv * d;
      const double score = score_of(s, &q[at], &k[key]), p = std::exp(score - forward.lse[row * s.heads + h]);
      const double slope =
          s.softcap > 0 ? 1 - score / s.softcap * (score / s.softcap) : 1;  // of the score by its product
      double dp = 0;
      for (int64_t i = 0; i < d; ++i) dp += dout[at + i] * v[key + i];
      const double ds = s.scale * slope * p * (dp - delta);
      for (int64_t i = 0; i < d; ++i) {
        g.dq[at + i] += ds * k[key + i];
        g.dk[key + i] += ds * q[at + i];
        g.dv[key + i] += p * dout[at + i];
      }
    }
  });
  return g;
}

}  // namespace bantam::reference
