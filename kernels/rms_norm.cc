// SPDX-License-Identifier: Apache-2.0
#include "rms_norm.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void rms_norm(Context& ctx, const RmsNormArgs& args) {
  constexpr detail::OpCheck check("rms_norm");
  check.matrix("x", args.x);
  check.matrix("y", args.y, args.x.rows, args.x.cols);
  check.that(args.eps >= 0, "eps must be at least 0", double{args.eps});
  if (args.x.rows == 0) return;
  check.present("weight", args.weight);
  check.present("rstd", args.rstd);
  detail::require(ctx.backend().rms_norm, ctx, "rms_norm")(ctx, args);
}

void rms_norm_backward(Context& ctx, const RmsNormBackwardArgs& args) {
  constexpr detail::OpCheck check("rms_norm_backward");
  check.matrix("x", args.x);
  check.matrix("dy", args.dy, args.x.rows, args.x.cols);
  if (args.dx) check.matrix("dx", args.dx, args.x.rows, args.x.cols);
  if (args.x.rows == 0) return;
  check.present("weight", args.weight);
  check.present("rstd", args.rstd);
  detail::require(ctx.backend().rms_norm_backward, ctx, "rms_norm_backward")(ctx, args);
}

}  // namespace bantam
