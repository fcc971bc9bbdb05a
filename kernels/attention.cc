// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include <cmath>

#include "attention_tiles.h"
#include "backend.h"
#include "error.h"
#include "op_check.h"

namespace bantam {

namespace {

void check_shape(const detail::OpCheck& check, const AttentionShape& s) {
  check.that(s.kv_heads >= 1, "kv_heads must be at least 1", s.kv_heads);
  check.that(s.heads >= 1 && s.heads % s.kv_heads == 0, "heads must be a multiple of kv_heads", s.heads);
  check.that(s.head_dim >= 1 && s.head_dim <= kMaxHeadDim, "head_dim must be in 1 .. 512", s.head_dim);
  check.that(s.num_seqs >= 1, "num_seqs must be at least 1 where there are rows", s.num_seqs);
  check.that(s.window >= 0, "window must be at least 0", s.window);
  check.that(s.softcap >= 0 && std::isfinite(s.softcap), "softcap must be finite and at least 0", double{s.softcap});
  check.present("cu_q", s.cu_q);
  check.present("cu_k", s.cu_k);
}

// Offsets rise from 0 to the number of rows, and each sequence has at least as many keys as queries.
void check_sequences(const char* op, const AttentionShape& s, int64_t tq, int64_t tk) {
  const auto fail = [&](const std::string& what) { throw Error(ErrorCode::internal, str(op, ": ", what)); };
  const int64_t last_q = s.cu_q[s.num_seqs], last_k = s.cu_k[s.num_seqs];
  if (s.cu_q[0] != 0 || last_q != tq) fail(str("cu_q covers rows ", s.cu_q[0], " .. ", last_q, ", expected 0 .. ", tq));
  if (s.cu_k[0] != 0 || last_k != tk) fail(str("cu_k covers rows ", s.cu_k[0], " .. ", last_k, ", expected 0 .. ", tk));
  for (int64_t i = 0; i < s.num_seqs; ++i) {
    const int64_t nq = int64_t{s.cu_q[i + 1]} - s.cu_q[i], nk = int64_t{s.cu_k[i + 1]} - s.cu_k[i];
    if (nq < 0 || nk < nq)
      fail(str("sequence ", i, " has ", nq, " queries and ", nk, " keys, expected 0 <= queries <= keys"));
  }
}

}  // namespace

void attention(Context& ctx, const AttentionArgs& args) {
  constexpr detail::OpCheck check("attention");
  const AttentionShape& s = args.shape;
  const int64_t tq = args.q.rows, tk = args.k.rows, width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  if (tq > 0) check_shape(check, s);
  check.matrix("q", args.q, tq, width);
  check.matrix("k", args.k, tk, kv_width);
  check.matrix("v", args.v, tk, kv_width);
  check.matrix("o", args.o, tq, width);
  check.matrix("lse", args.lse, tq, s.heads);
  check.dtype("k", args.k, args.q.dtype);
  check.dtype("v", args.v, args.q.dtype);
  check.dtype("o", args.o, args.q.dtype);
  check.dtype("lse", args.lse, DType::f32);
  if (tq == 0) return;
  check_sequences("attention", s, tq, tk);
  detail::require(ctx.backend().attention, ctx, "attention")(ctx, args);
}

void attention_backward(Context& ctx, const AttentionBackwardArgs& args) {
  constexpr detail::OpCheck check("attention_backward");
  const AttentionShape& s = args.shape;
  const int64_t t = args.q.rows, width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  if (t > 0) check_shape(check, s);
  for (const auto& [name, view] :
       {std::pair<const char*, ConstTensorView>{"q", args.q}, {"o", args.o}, {"dout", args.dout}})
    check.matrix(name, view, t, width);
  for (const auto& [name, view] : {std::pair<const char*, ConstTensorView>{"k", args.k}, {"v", args.v}})
    check.matrix(name, view, t, kv_width);
  if (args.dq) check.matrix("dq", args.dq, t, width);
  if (args.dk) check.matrix("dk", args.dk, t, kv_width);
  if (args.dv) check.matrix("dv", args.dv, t, kv_width);
  check.matrix("lse", args.lse, t, s.heads);
  check.matrix("delta", args.delta, t, s.heads);
  check.dtype("k", args.k, args.q.dtype);
  check.dtype("v", args.v, args.q.dtype);
  check.dtype("lse", args.lse, DType::f32);
  check.dtype("delta", args.delta, DType::f32);
  if (t == 0) return;
  check_sequences("attention_backward", s, t, t);
  for (int64_t i = 0; i <= s.num_seqs; ++i)
    if (s.cu_q[i] != s.cu_k[i])
      throw Error(ErrorCode::internal,
                  str("attention_backward: cu_k[", i, "] is ", s.cu_k[i], ", expected cu_q's ", s.cu_q[i]));
  detail::require(ctx.backend().attention_backward, ctx, "attention_backward")(ctx, args);
}

}  // namespace bantam
