// SPDX-License-Identifier: Apache-2.0
#include "gated_act.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void gated_act(Context& ctx, const GatedActArgs& args) {
  constexpr detail::OpCheck check("gated_act");
  check.matrix("gate", args.gate);
  check.matrix("up", args.up, args.gate.rows, args.gate.cols);
  check.matrix("y", args.y, args.gate.rows, args.gate.cols);
  check.dtype("up", args.up, args.gate.dtype);
  check.dtype("y", args.y, args.gate.dtype);
  if (args.gate.rows == 0) return;
  detail::require(ctx.backend().gated_act, ctx, "gated_act")(ctx, args);
}

void gated_act_backward(Context& ctx, const GatedActBackwardArgs& args) {
  constexpr detail::OpCheck check("gated_act_backward");
  check.matrix("gate", args.gate);
  check.matrix("up", args.up, args.gate.rows, args.gate.cols);
  check.dtype("up", args.up, args.gate.dtype);
  check.matrix("dy", args.dy, args.gate.rows, args.gate.cols);
  if (args.dgate) check.matrix("dgate", args.dgate, args.gate.rows, args.gate.cols);
  if (args.dup) check.matrix("dup", args.dup, args.gate.rows, args.gate.cols);
  if (args.gate.rows == 0 || (!args.dgate && !args.dup)) return;
  detail::require(ctx.backend().gated_act_backward, ctx, "gated_act_backward")(ctx, args);
}

}  // namespace bantam
