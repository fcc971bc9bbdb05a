// SPDX-License-Identifier: Apache-2.0
#include "rope.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void rope(Context& ctx, const RopeArgs& args) {
  constexpr detail::OpCheck check("rope");
  check.matrix("x", args.x);
  check.matrix("y", args.y, args.x.rows, args.x.cols);
  check.that(args.head_dim > 0 && args.head_dim % 2 == 0, "head_dim must be even and positive", args.head_dim);
  check.that(args.x.cols % args.head_dim == 0, "head_dim must divide the columns of x", args.head_dim);
  for (const auto* table : {&args.cos, &args.sin}) {
    const char* name = table == &args.cos ? "cos" : "sin";
    check.matrix(name, *table, args.x.rows, args.head_dim / 2);
    check.dtype(name, *table, DType::f32);
  }
  if (args.x.rows == 0) return;
  detail::require(ctx.backend().rope, ctx, "rope")(ctx, args);
}

}  // namespace bantam
