// SPDX-License-Identifier: Apache-2.0
#include "dropout.h"

#include "backend.h"
#include "hash.h"
#include "op_check.h"

namespace bantam {

void dropout(Context& ctx, const DropoutArgs& args) {
  constexpr detail::OpCheck check("dropout");
  check.matrix("x", args.x);
  check.matrix("y", args.y, args.x.rows, args.x.cols);
  check.that(args.p >= 0 && args.p < 1, "p must be in [0, 1)", double{args.p});
  check.that(args.layer >= 0 && args.layer < 65536, "layer must be in [0, 65536)", int64_t{args.layer});
  check.that(args.site >= 0 && args.site < 65536, "site must be in [0, 65536)", int64_t{args.site});
  if (args.x.rows == 0) return;
  check.present("row_key", args.row_key);
  check.present("position", args.position);
  detail::require(ctx.backend().dropout, ctx, "dropout")(ctx, args);
}

uint64_t dropout_row_key(uint64_t seed, uint64_t epoch, uint64_t sample_id) {
  uint64_t key = 0;
  for (const uint64_t part : {seed, epoch, sample_id}) key = mix64(key + part);
  return key;
}

}  // namespace bantam
