// SPDX-License-Identifier: Apache-2.0
#include "grad_norm.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void grad_norm(Context& ctx, const GradNormArgs& args) {
  constexpr detail::OpCheck check("grad_norm");
  check.that(args.n >= 0, "n must be at least 0", args.n);
  check.present("sum_of_squares", args.sum_of_squares);
  if (args.n > 0) check.present("grad", args.grad);
  detail::require(ctx.backend().grad_norm, ctx, "grad_norm")(ctx, args);
}

}  // namespace bantam
