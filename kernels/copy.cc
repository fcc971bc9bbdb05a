// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void copy(Context& ctx, const CopyArgs& args) {
  constexpr detail::OpCheck check("copy");
  check.matrix("x", args.x);
  check.matrix("y", args.y, args.x.rows, args.x.cols);
  if (args.x.rows == 0) return;
  detail::require(ctx.backend().copy, ctx, "copy")(ctx, args);
}

}  // namespace bantam
