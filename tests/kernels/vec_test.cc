// SPDX-License-Identifier: Apache-2.0
// The shared vector pieces of the CPU kernels against libm in double and against the scalar conversions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vec_test.cc"
#include "kernels/vec_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
// clang-format on
#include "kernels/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bantam::HWY_NAMESPACE {

// fn: see enum Fn below (an enum of this namespace would be one type per target).
void apply(int fn, const float* x, float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, auto count) HWY_ATTR {
    const V8 v = load(x + i, count);
    switch (fn) {
      case 0:
        return store(vec_exp(v), y + i, count);
      case 1:
        return store(vec_tanh(v), y + i, count);
      case 2:
        return store(vec_sigmoid(v).s, y + i, count);
      case 3:
        return store(vec_sigmoid(v).t, y + i, count);
      case 4:
        return store(widen(narrow(v)), y + i, count);
    }
  });
}
float sum_of(const float* x, int64_t n) {
  return sum_vectors(n, [&](int64_t i, auto count, V8 acc) HWY_ATTR { return hn::Add(acc, load(x + i, count)); });
}
float greatest(const float* x, int64_t n) {
  return max_of(x, n);
}

}  // namespace bantam::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace bantam {
HWY_EXPORT(apply);
HWY_EXPORT(sum_of);
HWY_EXPORT(greatest);

namespace {
enum Fn : int { kExp, kTanh, kSigmoid, kOneMinusSigmoid, kRoundBf16 };

double ulp(double v) {
  return std::ldexp(1.0, v == 0 ? -149 : std::max(-149, std::ilogb(v) - 23));
}

std::vector<float> run(Fn fn, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  HWY_DYNAMIC_DISPATCH(apply)(fn, x.data(), y.data(), static_cast<int64_t>(x.size()));
  return y;
}
// Every 4093rd bit pattern: all exponents, both signs, no infinity or NaN.
std::vector<float> sweep() {
  std::vector<float> x;
  for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 4093) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(u));
    if (std::isfinite(v)) x.push_back(v);
  }
  for (int i = 0; i < 400000; ++i) x.push_back(-106.0f + 0.0005f * static_cast<float>(i));
  return x;
}
template <class F>
double worst_ulp(Fn fn, F exact) {
  const std::vector<float> x = sweep(), y = run(fn, x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(static_cast<double>(x[i]));
    if (want > std::numeric_limits<float>::max()) {
      CHECK(y[i] == std::numeric_limits<float>::infinity());
      continue;
    }
    const double error = std::abs(y[i] - want) / ulp(want);
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}
constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
}  // namespace

TEST_CASE("vec_exp, vec_tanh and vec_sigmoid are within their bounds on the whole range") {
  CHECK(worst_ulp(kExp, [](double v) { return std::exp(v); }) < 1);
  CHECK(worst_ulp(kTanh, [](double v) { return std::tanh(v); }) < 1.5);
  CHECK(worst_ulp(kSigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }) < 3);
  CHECK(worst_ulp(kOneMinusSigmoid, [](double v) { return 1 / (1 + std::exp(v)); }) < 3);
}

TEST_CASE("special values") {
  const std::vector<float> x = {kInf, -kInf, kNan, 0, -0.0f, 200, -200};
  const std::vector<float> e = run(kExp, x), t = run(kTanh, x), s = run(kSigmoid, x);
  CHECK(e[0] == kInf);
  CHECK(e[1] == 0);
  CHECK(std::isnan(e[2]));
  CHECK(e[3] == 1);
  CHECK(e[5] == kInf);
  CHECK(e[6] == 0);
  CHECK(t[0] == 1);
  CHECK(t[1] == -1);
  CHECK(std::isnan(t[2]));
  CHECK(std::signbit(t[4]));
  CHECK(s[0] == 1);
  CHECK(s[1] == 0);
  CHECK(std::isnan(s[2]));
  CHECK(s[3] == 0.5f);
}

TEST_CASE("bf16 stores round to nearest even for every pattern class, as to_bf16 does") {
  std::vector<float> x;
  for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 0x8000)  // exact values and ties
    for (uint32_t near : {0u, 1u, 0x7fffu}) x.push_back(std::bit_cast<float>(static_cast<uint32_t>(u) | near));
  x.push_back(1);  // odd length: the tail path too
  const std::vector<float> y = run(kRoundBf16, x);
  int64_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i)
    wrong += std::bit_cast<uint32_t>(y[i]) != std::bit_cast<uint32_t>(to_f32(to_bf16(x[i])));
  CHECK(wrong == 0);
}

TEST_CASE("sums have a fixed order that a scalar model reproduces, for every length") {
  for (int64_t n = 1; n < 200; ++n) {
    std::vector<float> x(n);
    for (int64_t i = 0; i < n; ++i)
      x[i] = std::sin(static_cast<float>(i * 7 + n)) * std::exp2(static_cast<float>(i % 13));
    float chain[32] = {};
    for (int64_t i = 0; i < n; ++i) chain[i % 32] += x[i];
    for (int half = 16; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) chain[k] += chain[k + half];
    CHECK(HWY_DYNAMIC_DISPATCH(sum_of)(x.data(), n) == chain[0]);
    CHECK(HWY_DYNAMIC_DISPATCH(greatest)(x.data(), n) == *std::max_element(x.begin(), x.end()));
    CHECK(HWY_STATIC_DISPATCH(sum_of)(x.data(), n) == chain[0]);  // the baseline target's width
  }
}

}  // namespace bantam
#endif
