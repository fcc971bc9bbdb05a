// SPDX-License-Identifier: Apache-2.0
#include "embedding.h"

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
  if (ctx.backend().host_memory)
    check_token_ids("embedding", {args.ids, static_cast<size_t>(args.y.rows)}, args.table.rows);
  detail::require(ctx.backend().embedding, ctx, "embedding")(ctx, args);
}

void check_token_ids(const char* where, std::span<const int32_t> ids, int64_t table_rows) {
  for (size_t t = 0; t < ids.size(); ++t)
    if (ids[t] < 0 || ids[t] >= table_rows)
      throw Error(ErrorCode::data,
                  str(where, ": position ", t, ": token id ", ids[t], ", but the table has ", table_rows,
                      " rows (expected 0 to ", table_rows - 1, ")"),
                  "do tokenizer and model belong together?");
}

}  // namespace bantam
