// SPDX-License-Identifier: Apache-2.0
#include "kernels/gated_act.h"

#include <limits>

#include "op_test.h"
#include "reference/gated_act.h"

using namespace bantam;
using namespace bantam::test;

namespace {
const std::vector<Act> kActs = {Act::silu, Act::gelu_tanh};
double units(Act act, double x) {
  return act == Act::silu ? tolerance::kSilu : tolerance::gelu_units(reference::gelu_two_u(x));
}
double slope_units(Act act, double x) {
  return act == Act::silu ? tolerance::kSiluSlope : tolerance::gelu_slope_units(reference::gelu_two_u(x));
}
// The slope is s + x s (1 - s) u': its terms, for the error bound.
double slope_terms(Act act, double x) {
  const double z = act == Act::silu ? x : reference::gelu_two_u(x);
  const double dz = act == Act::silu ? 1 : 2 * reference::kGeluScale * (1 + 3 * reference::kGeluCubic * x * x);
  return reference::sigmoid(z) * (1 + std::abs(x) * reference::sigmoid(-z) * dz);
}
}  // namespace

TEST_CASE("reference gated_act: the slope is the complex step of the activation") {
  for (const Act act : kActs)
    for (double x = -8; x < 8; x += 0.37) {
      const double d = reference::activate(act, std::complex<double>(x, 1e-30)).imag() / 1e-30;
      CHECK(std::abs(d - reference::activate_slope(act, x)) <= 1e-12 * std::max(std::abs(d), slope_terms(act, x)));
    }
  for (double x = -8; x < 8; x += 0.37) {
    const double tanh_form = 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    CHECK(std::abs(reference::activate(Act::gelu_tanh, x) - tanh_form) <= 1e-15 * (1 + std::abs(x)));
  }
  CHECK(reference::activate(Act::silu, 1.0) == doctest::Approx(0.7310585786300049));
  CHECK(reference::activate(Act::gelu_tanh, 1.0) == doctest::Approx(0.8411919906082768));
}

TEST_CASE("gated_act equals the reference in double, and in place") {
  for (const Shape s : shapes())
    for (const DType type : kFloats)
      for (const Act act : kActs) {
        const Matrix gate(type, s.rows, s.cols, Random(1), 6), up(type, s.rows, s.cols, Random(2), 2);
        Matrix y(type, s.rows, s.cols);
        gated_act(context(), {.gate = gate, .up = up, .act = act, .y = y});
        Worst worst;
        for (int64_t t = 0; t < s.rows; ++t)
          for (int64_t i = 0; i < s.cols; ++i) {
            const double x = gate.at(t, i), want = reference::gated_act<double>(act, x, up.at(t, i));
            worst.add(type, y.at(t, i), want, units(act, x), std::abs(want));
          }
        CAPTURE(s.rows);
        CAPTURE(s.cols);
        CHECK(worst.ratio() <= 1);
        CHECK(y.gaps_intact());
        Matrix in_gate = gate, in_up = up;
        gated_act(context(), {.gate = in_gate, .up = up, .act = act, .y = in_gate});
        gated_act(context(), {.gate = gate, .up = in_up, .act = act, .y = in_up});
        CHECK(in_gate == y);
        CHECK(in_up == y);
      }
}

TEST_CASE("gated_act_backward equals the reference in double: dtypes, modes, in place, either output alone") {
  for (const Shape s : shapes())
    for (const DType type : kFloats)
      for (const DType tdy : kFloats)
        for (const DType tout : kFloats)
          for (const Act act : kActs) {
            const Matrix gate(type, s.rows, s.cols, Random(3), 6), up(type, s.rows, s.cols, Random(4), 2);
            const Matrix dy(tdy, s.rows, s.cols, Random(5), 2), before(tout, s.rows, s.cols, Random(6));
            Matrix dgate = before, dup = before;
            gated_act_backward(
                context(),
                {.gate = gate, .up = up, .dy = dy, .act = act, .dgate = dgate, .dup = dup, .dup_mode = GradMode::add});
            Worst worst_gate, worst_up;
            for (int64_t t = 0; t < s.rows; ++t)
              for (int64_t i = 0; i < s.cols; ++i) {
                const double x = gate.at(t, i), u = up.at(t, i), g = dy.at(t, i);
                worst_gate.add(tout, dgate.at(t, i), g * u * reference::activate_slope(act, x), slope_units(act, x),
                               std::abs(g * u) * slope_terms(act, x));
                const double want = g * reference::activate(act, x), start = before.at(t, i);
                worst_up.add(tout, dup.at(t, i), want + start, units(act, x), std::abs(want));
              }
            CAPTURE(s.rows);
            CAPTURE(s.cols);
            CHECK(worst_gate.ratio() <= 1);
            CHECK(worst_up.ratio() <= 1);
            CHECK(dgate.gaps_intact());
            CHECK(dup.gaps_intact());

            Matrix alone = before;
            gated_act_backward(context(), {.gate = gate, .up = up, .dy = dy, .act = act, .dgate = alone});
            CHECK(alone == dgate);
            alone = before;
            gated_act_backward(context(),
                               {.gate = gate, .up = up, .dy = dy, .act = act, .dup = alone, .dup_mode = GradMode::add});
            CHECK(alone == dup);
            if (type == tout) {
              Matrix in_gate = gate, in_up = up, plain_up(tout, s.rows, s.cols);
              gated_act_backward(context(), {.gate = gate, .up = up, .dy = dy, .act = act, .dup = plain_up});
              gated_act_backward(context(),
                                 {.gate = in_gate, .up = in_up, .dy = dy, .act = act, .dgate = in_gate, .dup = in_up});
              CHECK(in_gate == dgate);
              CHECK(in_up == plain_up);
            }
          }
}

TEST_CASE("gated_act row contract, forward and backward") {
  const Matrix gate(DType::bf16, 1000, 65, Random(7), 6), up(DType::bf16, 1000, 65, Random(8)),
      dy(DType::f32, 1000, 65, Random(9));
  for (const Act act : kActs) {
    check_row_contract(Matrix(DType::bf16, 1000, 65), [&](Context& ctx, Matrix& y, int64_t r0, int64_t n) {
      gated_act(ctx, {.gate = gate.part(r0, n), .up = up.part(r0, n), .act = act, .y = y.part(r0, n)});
    });
    check_row_contract(Matrix(DType::f32, 1000, 65), [&](Context& ctx, Matrix& dgate, int64_t r0, int64_t n) {
      gated_act_backward(ctx, {.gate = gate.part(r0, n),
                               .up = up.part(r0, n),
                               .dy = dy.part(r0, n),
                               .act = act,
                               .dgate = dgate.part(r0, n),
                               .dgate_mode = GradMode::add});
    });
  }
}

TEST_CASE("gated_act: large gates saturate, NaN stays NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Act act : kActs) {
    Matrix gate(DType::f32, 1, 7), up(DType::f32, 1, 7), y(DType::f32, 1, 7), dgate(DType::f32, 1, 7);
    const float values[] = {1e30f, -1e30f, 300, -300, 0, nan, 1};
    for (int i = 0; i < 7; ++i) gate.put(0, i, values[i]), up.put(0, i, i == 6 ? nan : 1.0f);
    Matrix dy(DType::f32, 1, 7);
    for (int i = 0; i < 7; ++i) dy.put(0, i, 1);
    gated_act(context(), {.gate = gate, .up = up, .act = act, .y = y});
    gated_act_backward(context(), {.gate = gate, .up = up, .dy = dy, .act = act, .dgate = dgate});
    CHECK(y.at(0, 0) == 1e30f);
    CHECK(y.at(0, 1) == 0);
    CHECK(y.at(0, 2) == 300);
    CHECK(y.at(0, 3) == 0);
    CHECK(y.at(0, 4) == 0);
    CHECK(std::isnan(y.at(0, 5)));
    CHECK(std::isnan(y.at(0, 6)));
    CHECK(dgate.at(0, 0) == 1);
    CHECK(dgate.at(0, 1) == 0);
    CHECK(dgate.at(0, 4) == 0.5f);
    CHECK(std::isnan(dgate.at(0, 5)));
  }
}

TEST_CASE("gated_act: wrong arguments") {
  Matrix gate(DType::f32, 2, 8), up(DType::bf16, 2, 8), y(DType::f32, 2, 8), dy(DType::f32, 1, 8);
  CHECK(error_of(ErrorCode::internal, [&] { gated_act(context(), {.gate = gate, .up = up, .y = y}); }) ==
        "gated_act: up has dtype bf16, expected f32");
  CHECK(error_of(ErrorCode::internal, [&] {
          gated_act_backward(context(), {.gate = gate, .up = y, .dy = dy, .dgate = y});
        }) == "gated_act_backward: dy has shape [1, 8], expected [2, 8]");
}
