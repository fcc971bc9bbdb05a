// SPDX-License-Identifier: Apache-2.0
// What only training needs, on every backend: cross entropy, adamw, grad_norm. The same cases, the same tolerances.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>

#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/grad_norm.h"
#include "tests/kernels/device_harness.h"
#include "tests/kernels/tolerance.h"
#include "tests/reference/adamw.h"
#include "tests/reference/cross_entropy_reference.h"

using namespace bantam;
using namespace bantam::test;

namespace {

// ---- adamw

struct Adamw {
  std::vector<float> param, m, v;
  bool operator==(const Adamw&) const = default;
  Adamw from(int64_t first) const {
    return {{param.begin() + first, param.end()}, {m.begin() + first, m.end()}, {v.begin() + first, v.end()}};
  }
};
struct Clip {  // a sum of squares, and the norm that is allowed; nothing: no sum is given
  std::optional<double> squares = 16.0;
  double max = 1;
};
// One step of all but the last `left` elements, which begin `offset` elements after an aligned address, NaN all around.
Adamw adamw_step(Context& ctx, const Adamw& s, const std::vector<float>& grad, int64_t step, int64_t offset,
                 int64_t left = 0, const Clip& clip = {}) {
  const auto n = static_cast<int64_t>(grad.size());
  const auto device = [&](const std::vector<float>& x) {
    return std::make_unique<DeviceMatrix>(ctx, DType::f32, 1, n, x, n + 9, offset);
  };
  const auto param = device(s.param), g = device(grad), m = device(s.m), v = device(s.v);
  const DeviceVector<AdamwScalars> scalars(
      ctx, {adamw_scalars({.step = step, .lr = 3e-4, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.01})});
  const DeviceVector<double> squares(ctx, std::vector<double>{clip.squares.value_or(0)});
  adamw(ctx, {.param = param->view().row<float>(0),
              .grad = g->view().row<float>(0),
              .m = m->view().row<float>(0),
              .v = v->view().row<float>(0),
              .n = n - left,
              .scalars = scalars.get(),
              .sum_of_squares = clip.squares ? squares.get() : nullptr,
              .max_grad_norm = clip.max});
  CHECK(g->host() == grad);
  return {param->host(), m->host(), v->host()};
}

TEST_CASE("adamw") {
  on_each_backend([](Context& ctx) {
    for (const int64_t n : {1, 3, 4, 63, 65, 1024, 1025, 3001})
      for (const int64_t step : {1, 17}) {
        CAPTURE(n);
        CAPTURE(step);
        const auto grad = random_values(n, 1, 3.0f);
        Adamw start{random_values(n, 2, 2.0f), random_values(n, 3), random_values(n, 4)};
        for (float& x : start.v) x *= x;
        if (n > 2) start.v[1] = 0;
        const Adamw got = adamw_step(ctx, start, grad, step, 0);
        const auto count = static_cast<size_t>(n);
        std::vector<double> p(count), m(count), v(count), p_bound(count), m_bound(count), v_bound(count);
        for (size_t i = 0; i < count; ++i) {
          const double g = 0.25 * static_cast<double>(grad[i]), s = static_cast<double>(step);
          const auto want =
              reference::adamw<double>({start.param[i], start.m[i], start.v[i]}, g, s, 3e-4, 0.8, 0.99, 1e-6, 0.01);
          p[i] = want.param, m[i] = want.m, v[i] = want.v;
          const double m_terms = 0.8 * std::fabs(start.m[i]) + 0.2 * std::fabs(g);
          const double largest_update =
              3e-4 * m_terms / (1 - std::pow(0.8, s)) / (std::sqrt(want.v / (1 - std::pow(0.99, s))) + 1e-6);
          m_bound[i] = tolerance::kAdamwM * kF32Eps * m_terms + tolerance::kTiny;
          v_bound[i] = tolerance::kAdamwV * kF32Eps * want.v + tolerance::kTiny;
          p_bound[i] =
              tolerance::kAdamwUpdate * kF32Eps * largest_update + 3 * tolerance::stored(DType::f32, start.param[i]);
        }
        check_close(got.param, p, p_bound);
        check_close(got.m, m, m_bound);
        check_close(got.v, v, v_bound);

        // The numbers of an element depend on nothing else: not on the run, alignment, place or neighbours.
        CHECK(adamw_step(ctx, start, grad, step, 0) == got);
        CHECK(adamw_step(ctx, start, grad, step, 1) == got);
        Adamw shorter = adamw_step(ctx, start, grad, step, 0, 1);
        CHECK(shorter.param.back() == start.param.back());
        CHECK(shorter.m.back() == start.m.back());
        CHECK(shorter.v.back() == start.v.back());
        shorter.param.back() = got.param.back();
        shorter.m.back() = got.m.back();
        shorter.v.back() = got.v.back();
        CHECK(shorter == got);
        if (n > 1) CHECK(adamw_step(ctx, start.from(1), {grad.begin() + 1, grad.end()}, step, 0) == got.from(1));
      }
  });
}

TEST_CASE("adamw clips by the norm it is given, as the host would, and a norm that is not finite changes nothing") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t kN = 2051;  // more than one block
    const auto grad = random_values(kN, 1, 3.0f);
    Adamw start{random_values(kN, 2, 2.0f), random_values(kN, 3), random_values(kN, 4)};
    for (float& x : start.v) x *= x;
    const auto with = [&](const Clip& clip) { return adamw_step(ctx, start, grad, 3, 0, 0, clip); };
    const Adamw whole = with({std::nullopt, 0});
    CHECK(with({7.5, 0}) == whole);               // clipping is off
    CHECK(with({7.5, std::sqrt(7.5)}) == whole);  // the norm is just allowed
    CHECK(with({0.0, 1}) == whole);
    CHECK_FALSE(with({7.5, 2.5}) == whole);
    for (const auto& [squares, max] : {std::pair{7.5, 2.5}, {1e-3, 1e-2}, {3e75, 1.0}, {0.3, 0.1}}) {
      CAPTURE(squares);
      std::vector<float> scaled = grad;
      const auto clip = static_cast<float>(max / std::sqrt(squares));
      for (float& x : scaled) x *= clip;
      CHECK(with({squares, max}) == adamw_step(ctx, start, scaled, 3, 0, 0, {std::nullopt, 0}));
    }
    constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
    for (const double squares : {kInf, kNaN, -1.0})
      for (const double max : {0.0, 1.0}) CHECK(with({squares, max}) == start);
  });
}

// ---- grad_norm

double sum_of_squares(Context& ctx, const std::vector<float>& grad, int64_t offset = 0) {
  const auto n = static_cast<int64_t>(grad.size());
  const DeviceMatrix g(ctx, DType::f32, 1, n, grad, n + 9, offset);
  const DeviceVector<double> sum(ctx, 1);
  grad_norm(ctx, {.grad = g.view().row<float>(0), .n = n, .sum_of_squares = sum.get()});
  return sum.host()[0];
}

TEST_CASE("grad_norm") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t kSlice = 65536, kManySlices = 257 * kSlice + 5;  // more than a block adds up at once
    for (const int64_t n :
         {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{4}, int64_t{17}, int64_t{63}, int64_t{65}, int64_t{1023},
          int64_t{1025}, kSlice, kSlice + 1, int64_t{140001}, int64_t{200003}, int64_t{330001}, kManySlices}) {
      CAPTURE(n);
      auto grad = random_values(n, 5, 10.0f);
      for (float& x : grad) x = x * x * x;  // of many sizes: each addition rounds
      long double want = 0;
      for (const float x : grad) want += static_cast<long double>(x) * x;
      const double got = sum_of_squares(ctx, grad);
      CHECK(std::fabs(got - static_cast<double>(want)) <= tolerance::grad_norm(n) * static_cast<double>(want));
      double in_order = 0;
      for (auto at = grad.begin(); at < grad.end();) {
        const auto end = at + std::min<std::ptrdiff_t>(kSlice, grad.end() - at);
        in_order += sum_of_squares(ctx, {at, end});
        at = end;
      }
      CHECK(in_order == got);
      if (n == kManySlices) continue;
      CHECK(sum_of_squares(ctx, grad) == got);
      CHECK(sum_of_squares(ctx, grad, 1) == got);
    }
    std::vector<float> large(70000, 3e38f);
    CHECK(sum_of_squares(ctx, large) == doctest::Approx(70000 * 9e76).epsilon(1e-6));
    large[69999] = INFINITY;
    CHECK(sum_of_squares(ctx, large) == INFINITY);
    large[3] = std::nanf("");
    CHECK(std::isnan(sum_of_squares(ctx, large)));
  });
}

// ---- cross entropy

struct Case {
  int64_t rows, cols, vocab;
  DType hidden_type = DType::f32, head_type = DType::f32;
  Math math = Math::f32;
  bool nf4 = false;
  int64_t pad = 3, offset = 1;  // of hidden and dhidden; 0: rows that can be read four elements at a time
};
struct LossResult {
  std::vector<float> loss, lse, dhidden;
  bool operator==(const LossResult&) const = default;
};
struct LossProblem {
  Case c;
  std::vector<float> hidden, head, weights;
  std::vector<int32_t> labels;
  Nf4Matrix nf4;

  explicit LossProblem(const Case& k)
      : c(k),
        hidden(rounded(random_values(k.rows * k.cols, 20), k.hidden_type)),
        head(rounded(random_values(k.vocab * k.cols, 21, 0.5f), k.head_type)),
        weights(random_values(k.rows, 22, 0.5f)),
        nf4(k.vocab, k.cols, true, 23) {
    if (k.nf4) head = nf4.values;
    for (float& w : weights) w += 0.75f;
    std::mt19937 bits(24);
    for (int64_t t = 0; t < k.rows; ++t) {
      const bool trained = bits() % 3 != 0;
      const auto label = static_cast<int32_t>(bits() % static_cast<uint32_t>(k.vocab));
      labels.push_back(t == 0 ? static_cast<int32_t>(k.vocab - 1) : t == 1 ? 0 : trained ? label : kIgnoreLabel);
    }
  }
  // `chunk` rows at a time; 0: all.
  LossResult run(Context& ctx, int64_t chunk, bool gradient = true, bool weighted = true, bool want_lse = true) const {
    const int64_t stride = c.cols + c.pad;
    const DeviceMatrix x(ctx, c.hidden_type, c.rows, c.cols, hidden, stride, c.offset);
    const DeviceMatrix w(ctx, c.head_type, c.vocab, c.cols, head, c.cols + 2 * c.pad);
    const DeviceNf4 w4(ctx, nf4);
    const DeviceMatrix loss(ctx, DType::f32, 1, c.rows, c.rows + 1), lse(ctx, DType::f32, 1, c.rows, c.rows + 1);
    const DeviceMatrix dhidden(ctx, DType::f32, c.rows, c.cols, stride, c.offset);
    const size_t bytes = cross_entropy_scratch(chunk ? chunk : c.rows, c.cols, c.vocab);
    const DeviceBytes scratch(ctx, bytes);
    CrossEntropyArgs args;
    args.hidden = x;
    args.labels = labels.data();
    args.weights = weighted ? weights.data() : nullptr;
    args.head = c.nf4 ? WeightView(w4) : WeightView(w);
    args.math = c.math;
    args.loss = loss.view().row<float>(0);
    args.lse = want_lse ? lse.view().row<float>(0) : nullptr;
    if (gradient) args.dhidden = dhidden;
    args.scratch = scratch.get();
    args.scratch_bytes = bytes;
    chunked_cross_entropy(ctx, args);
    return {loss.host(), lse.host(), dhidden.host()};
  }
};

// Losses are numbers of size ~log V; 1e-6 relative, as in cross_entropy_test. A gradient row in the 2-norm. Where the
// contract rounds an operand to bf16, a bf16 step (2^-8) of what is summed.
void check_against_reference(const LossProblem& p, const LossResult& got) {
  const bool half = p.c.math == Math::bf16;
  const bool exact = p.c.hidden_type == DType::bf16 && p.c.head_type == DType::bf16 && !p.c.nf4;  // the first product
  const std::vector<double> hidden(p.hidden.begin(), p.hidden.end()), head(p.head.begin(), p.head.end());
  const auto want = reference::cross_entropy(hidden, p.labels, head, p.c.cols);
  const auto gradient = reference::cross_entropy_backward(hidden, p.labels, p.weights, head, p.c.cols, want);
  const auto cols = static_cast<size_t>(p.c.cols);
  const double scale = std::max(1.0, std::log(static_cast<double>(p.c.vocab)));
  const double loss_bound = (half && !exact ? 1.0 / 200 : 1e-6) * scale, gradient_bound = half ? 1.0 / 50 : 4e-6;
  check_close(got.loss, want.loss, std::vector<double>(p.labels.size(), loss_bound));
  check_close(got.lse, want.lse, std::vector<double>(p.labels.size(), loss_bound));
  for (size_t t = 0; t < p.labels.size(); ++t) {
    double error = 0, norm = 0;
    for (size_t i = t * cols; i < (t + 1) * cols; ++i) {
      error += std::pow(got.dhidden[i] - gradient[i], 2);
      norm += gradient[i] * gradient[i];
      if (p.labels[t] == kIgnoreLabel) CHECK(got.dhidden[i] == 0);
    }
    CAPTURE(t);
    CHECK(std::sqrt(error) <= gradient_bound * std::max(std::sqrt(norm), 0.05));
    if (p.labels[t] == kIgnoreLabel) CHECK((got.loss[t] == 0 && got.lse[t] == 0));
  }
}

// While it lives, the emulated cuBLASLt adds up in an order that depends on the shape, as the real one may.
struct OrderByShape {
  OrderByShape() { setenv("COC_LT_BY_SHAPE", "1", 1); }
  ~OrderByShape() { unsetenv("COC_LT_BY_SHAPE"); }
};

TEST_CASE("cross entropy agrees with the reference, whatever the chunk") {
  const OrderByShape order;
  on_each_backend([](Context& ctx) {
    for (const Case& c : {Case{1, 1, 1}, Case{3, 64, 65}, Case{40, 63, 130, DType::f32, DType::f32, Math::f32},
                          Case{21, 48, 1027, DType::bf16, DType::bf16, Math::bf16, false, 0, 0},
                          Case{9, 24, 5003, DType::f32, DType::f32, Math::f32, false, 4, 0},
                          Case{9, 24, 5003, DType::bf16, DType::bf16, Math::bf16},
                          Case{1100, 5, 7}}) {  // more than 512 trained rows: several products in a chunk
      CAPTURE(c.vocab);
      const LossProblem p(c);
      const LossResult want = p.run(ctx, 0);
      check_against_reference(p, want);
      CHECK(p.run(ctx, 0) == want);
      CHECK(p.run(ctx, 7) == want);
      if (c.rows < 1000) CHECK(p.run(ctx, 1) == want);
    }
  });
}

TEST_CASE("cross entropy: hidden rows and heads of every format") {
  on_each_backend([](Context& ctx) {
    for (const Math math : {Math::f32, Math::bf16})
      for (const DType hidden : {DType::f32, DType::bf16})
        for (const int head : {0, 1, 2}) {
          CAPTURE(static_cast<int>(math));
          CAPTURE(std::string(name_of(hidden)));
          CAPTURE(head);
          const LossProblem p({20, 33, 130, hidden, head == 1 ? DType::bf16 : DType::f32, math, head == 2});
          const LossResult got = p.run(ctx, 0);
          check_against_reference(p, got);
          CHECK(p.run(ctx, 3) == got);
        }
  });
}

TEST_CASE("cross entropy: a row's result depends on that row alone") {
  const OrderByShape order;
  on_each_backend([](Context& ctx) {
    LossProblem p({12, 16, 50});
    std::fill(p.labels.begin(), p.labels.end(), 7);
    const LossResult all = p.run(ctx, 0);
    for (size_t t = 0; t < 12; t += 2) p.labels[t] = kIgnoreLabel;
    p.hidden[3 * 16 + 5] = std::numeric_limits<float>::quiet_NaN();
    const LossResult half = p.run(ctx, 0);
    for (size_t t = 0; t < 12; ++t) {
      CAPTURE(t);
      if (t == 3) {
        CHECK(std::isnan(half.loss[t] + half.lse[t] + half.dhidden[t * 16]));
        continue;
      }
      CHECK(half.loss[t] == (t % 2 ? all.loss[t] : 0));
      CHECK(half.lse[t] == (t % 2 ? all.lse[t] : 0));
      for (size_t i = t * 16; i < (t + 1) * 16; ++i) CHECK(half.dhidden[i] == (t % 2 ? all.dhidden[i] : 0));
    }
  });
}

TEST_CASE("cross entropy: loss only, no lse, no weights, nothing trained, no rows") {
  on_each_backend([](Context& ctx) {
    LossProblem p({25, 16, 100});
    const LossResult whole = p.run(ctx, 4);
    const LossResult loss_only = p.run(ctx, 4, false, true, false);
    CHECK(loss_only.loss == whole.loss);
    CHECK(std::isnan(loss_only.lse[0]));
    CHECK(std::isnan(loss_only.dhidden[0]));
    const LossResult unit = p.run(ctx, 4, true, false);
    CHECK(unit.loss == whole.loss);
    for (size_t i = 0; i < unit.dhidden.size(); ++i) CHECK(unit.dhidden[i] * p.weights[i / 16] == whole.dhidden[i]);
    std::fill(p.labels.begin(), p.labels.end(), kIgnoreLabel);
    CHECK(p.run(ctx, 4) == LossResult{std::vector<float>(25), std::vector<float>(25), std::vector<float>(25 * 16)});
    CHECK_NOTHROW(LossProblem({0, 16, 100}).run(ctx, 1));
  });
}

TEST_CASE("cross entropy: a confident row and large logits keep their precision") {
  on_each_backend([](Context& ctx) {
    LossProblem p({4, 4, 1000});
    for (size_t i = 0; i < p.hidden.size(); ++i) p.hidden[i] = i % 4 == 0 ? 1.0f : 0.0f;
    // Logits 300, 290 for one other, -300 for the rest: 300 in f32 is good to 1.5e-5 only. Row 3: infinitely small
    // ones.
    for (size_t v = 0; v < 1000; ++v) p.head[v * 4] = v == 500 ? 300.0f : v == 17 ? 290.0f : -300.0f;
    p.hidden[12] = 1e37f;
    p.labels = {500, 17, 3, 500};
    const LossResult got = p.run(ctx, 0);
    CHECK(std::fabs(got.loss[0] - std::log1p(std::exp(-10.0))) <= 0x1p-23);
    CHECK(std::fabs(got.loss[1] - (10.0 + std::log1p(std::exp(-10.0)))) <= 1e-6);
    CHECK(std::fabs(got.loss[2] - (600.0 + std::log1p(std::exp(-10.0)))) <= 6e-5);
    for (size_t v = 0; v < 1000; ++v) p.head[v * 4] = v == 500 ? -300.0f : -310.0f;  // none near 0
    const LossResult low = p.run(ctx, 0);
    CHECK(std::fabs(low.loss[0] - std::log1p(999 * std::exp(-10.0))) <= 0x1p-22);
    for (size_t v = 0; v < 1000; ++v) p.head[v * 4] = -300.0f;
    p.head[500 * 4] = 30.0f;  // 3e38; the rest of row 3 overflows to -inf
    CHECK(p.run(ctx, 0).loss[3] == 0.0f);
  });
}

}  // namespace
