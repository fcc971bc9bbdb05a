// SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include <cmath>

#include "backend.h"
#include "op_check.h"

namespace bantam {

AdamwScalars adamw_scalars(const AdamwStep& s) {
  constexpr detail::OpCheck check("adamw");
  check.that(s.step >= 1, "step must be at least 1", s.step);
  check.that(s.beta1 >= 0 && s.beta1 < 1, "beta1 must be in [0, 1)", s.beta1);
  check.that(s.beta2 >= 0 && s.beta2 < 1, "beta2 must be in [0, 1)", s.beta2);
  check.that(s.eps >= 0, "eps must be at least 0", s.eps);
  const double step = static_cast<double>(s.step);
  const double correction1 = 1 - std::pow(s.beta1, step), correction2 = 1 - std::pow(s.beta2, step);
  return {.beta1 = static_cast<float>(s.beta1),
          .rest1 = static_cast<float>(1 - s.beta1),
          .beta2 = static_cast<float>(s.beta2),
          .rest2 = static_cast<float>(1 - s.beta2),
          .keep = static_cast<float>(1 - s.lr * s.weight_decay),
          .step_size = static_cast<float>(s.lr / correction1),
          .root2 = static_cast<float>(std::sqrt(correction2)),
          .eps = static_cast<float>(s.eps)};
}

void adamw(Context& ctx, const AdamwArgs& args) {
  constexpr detail::OpCheck check("adamw");
  check.that(args.n >= 0, "n must be at least 0", args.n);
  check.that(args.max_grad_norm >= 0, "max_grad_norm must be at least 0", args.max_grad_norm);
  if (args.n == 0) return;
  check.present("param", args.param);
  check.present("grad", args.grad);
  check.present("m", args.m);
  check.present("v", args.v);
  check.present("scalars", args.scalars);
  if (args.max_grad_norm > 0) check.present("sum_of_squares", args.sum_of_squares);
  detail::require(ctx.backend().adamw, ctx, "adamw")(ctx, args);
}

}  // namespace bantam
