// SPDX-License-Identifier: Apache-2.0
#include "quantize_nf4.h"

#include "backend.h"
#include "op_check.h"

namespace bantam {

void quantize_nf4(Context& ctx, const QuantizeNf4Args& args) {
  constexpr detail::OpCheck check("quantize_nf4");
  check.matrix("x", args.x);
  check.that(args.x.stride == args.x.cols || args.x.rows <= 1, "x must be dense, its row stride is not its columns",
             args.x.stride);
  if (args.x.rows == 0) return;
  check.present("codes", args.codes);
  check.present("absmax", args.absmax);
  detail::require(ctx.backend().quantize_nf4, ctx, "quantize_nf4")(ctx, args);
}

}  // namespace bantam
