// SPDX-License-Identifier: Apache-2.0
#include "cross_entropy.h"

#include <limits>

#include "backend.h"
#include "cross_entropy_chunk.h"
#include "error.h"
#include "op_check.h"

namespace bantam {

size_t cross_entropy_scratch(int64_t rows, int64_t hidden_size, int64_t vocab_size) {
  return CrossEntropyChunk(rows, hidden_size, vocab_size).bytes;
}

int64_t cross_entropy_chunk_rows(size_t budget, int64_t max_rows, int64_t hidden_size, int64_t vocab_size) {
  return CrossEntropyChunk::most_rows(budget, max_rows, hidden_size, vocab_size);
}

void check_labels(const char* where, std::span<const int32_t> labels, int64_t vocab_size) {
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == kIgnoreLabel || (labels[t] >= 0 && labels[t] < vocab_size)) continue;
    throw Error(
        ErrorCode::data,
        str(where, ": the label of row ", t, " of ", labels.size(), " is ", labels[t], ", expected 0 .. ",
            vocab_size - 1, " (a vocabulary of ", vocab_size, ") or ", kIgnoreLabel, " for a row that is not trained"),
        "are the tokens those of this model's tokenizer, with no token added to it?");
  }
}

void chunked_cross_entropy(Context& ctx, const CrossEntropyArgs& args) {
  constexpr detail::OpCheck check("chunked_cross_entropy");
  const int64_t rows = args.hidden.rows, cols = args.hidden.cols, vocab = args.head.rows;
  check.matrix("hidden", args.hidden);
  check.that(args.head.cols == cols, "head must have the columns of hidden", args.head.cols);
  check.that(vocab >= 1 && vocab <= std::numeric_limits<int32_t>::max(), "head must have 1 .. 2^31 - 1 rows", vocab);
  if (args.dhidden) {
    check.matrix("dhidden", args.dhidden, rows, cols);
    check.dtype("dhidden", args.dhidden, DType::f32);
  }
  if (rows == 0) return;
  check.present("labels", args.labels);
  check.present("head", args.head.data);
  check.present("loss", args.loss);
  check.present("scratch", args.scratch);
  check.that(reinterpret_cast<uintptr_t>(args.scratch) % 64 == 0, "scratch must be 64-byte aligned, remainder",
             static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.scratch) % 64));
  const size_t least = cross_entropy_scratch(1, cols, vocab);
  if (args.scratch_bytes < least)
    throw Error(ErrorCode::does_not_fit,
                str("chunked_cross_entropy: scratch has ", args.scratch_bytes, " bytes, expected at least ", least,
                    " for one row of ", vocab, " logits"),
                "raise loss_chunk_bytes");
  check_labels("chunked_cross_entropy", {args.labels, static_cast<size_t>(rows)}, vocab);
  detail::require(ctx.backend().cross_entropy, ctx, "cross_entropy")(ctx, args);
}

}  // namespace bantam
