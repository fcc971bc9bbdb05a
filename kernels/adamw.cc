// SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void adamw(Context& ctx, const AdamwArgs& args) {
  constexpr detail::OpCheck check("adamw");
  check.that(args.n >= 0, "n must be at least 0", args.n);
  check.that(args.step >= 1, "step must be at least 1", args.step);
  check.that(args.beta1 >= 0 && args.beta1 < 1, "beta1 must be in [0, 1)", args.beta1);
  check.that(args.beta2 >= 0 && args.beta2 < 1, "beta2 must be in [0, 1)", args.beta2);
  check.that(args.eps >= 0, "eps must be at least 0", args.eps);
  if (args.n == 0) return;
  check.present("param", args.param);
  check.present("grad", args.grad);
  check.present("m", args.m);
  check.present("v", args.v);
  detail::require(ctx.backend().adamw, ctx, "adamw")(ctx, args);
}

}  // namespace bantam
