// SPDX-License-Identifier: Apache-2.0
#include "embedding.h"

#include <vector>

#include "backend.h"
#include "error.h"
#include "op_check.h"

namespace bantam {

void embedding(Context& ctx, const EmbeddingArgs& args) {
  constexpr detail::OpCheck check("embedding");
  check.matrix("y", args.y, args.y.rows, args.table.cols);
  check.that(args.table.rows >= 1, "table must have at least one row", args.table.rows);
  if (args.table.format != WeightFormat::nf4) {
    check.that(args.table.stride >= args.table.cols, "the row stride of table must be at least its columns",
               args.table.stride);
  } else if (!args.table.absmax) {
    check.present("absmax_q of table", args.table.absmax_q);
    check.present("nested_absmax of table", args.table.nested_absmax);
    check.present("nested_code of table", args.table.nested_code);
  }
  if (args.y.rows == 0) return;
  check.present("table", args.table.data);
  check.present("ids", args.ids);
  const auto op = detail::require(ctx.backend().embedding, ctx, "embedding");
  const int32_t* ids = args.ids;
  std::vector<int32_t> copy;
  if (!ctx.backend().host_memory) {
    copy.resize(static_cast<size_t>(args.y.rows));
    ctx.backend().download(copy.data(), ids, copy.size() * sizeof(int32_t));
    ids = copy.data();
  }
  for (int64_t t = 0; t < args.y.rows; ++t)
    if (ids[t] < 0 || ids[t] >= args.table.rows)
      throw Error(ErrorCode::data,
                  str("embedding: position ", t, ": token id ", ids[t], ", but the table has ", args.table.rows,
                      " rows (expected 0 to ", args.table.rows - 1, ")"),
                  "do tokenizer and model belong together?");
  op(ctx, args);
}

}  // namespace bantam
