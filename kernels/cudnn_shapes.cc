// SPDX-License-Identifier: Apache-2.0
#include "cudnn_shapes.h"

#include <initializer_list>

#include "error.h"

namespace bantam {

namespace {
// Rows that cuDNN reads 16 bytes at a time, with offsets of 32 bits.
bool fits(const ConstTensorView& t) {
  return t.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride % 8 == 0 &&
         t.rows * t.stride <= INT32_MAX;
}
bool lse_fits(const ConstTensorView& t) {
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.rows * t.stride <= INT32_MAX;
}
// A softcap needs a graph of the scores, which cuDNN does not combine with a causal mask.
bool common(const AttentionShape& s, Math math, const AttentionLibrary& library) {
  if (library.version < kCudnnLeast || library.capability < 80) return false;
  const bool packed_rows = (library.capability >= 90 && library.capability < 110) || library.version >= 91801;
  return packed_rows && math == Math::bf16 && s.softcap == 0 && s.head_dim % 8 == 0 && s.head_dim <= 256;
}
size_t rounded(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}
}  // namespace

std::string cudnn_text(int version) {
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

bool cudnn_takes(const AttentionArgs& a, const AttentionLibrary& library) {
  if (!common(a.shape, a.math, library) || !lse_fits(a.lse)) return false;
  for (const ConstTensorView& t : std::initializer_list<ConstTensorView>{a.q, a.k, a.v, a.o})
    if (!fits(t)) return false;
  return true;
}

bool cudnn_takes(const AttentionBackwardArgs& a, const AttentionLibrary& library) {
  if (!common(a.shape, a.math, library) || !lse_fits(a.lse)) return false;
  for (const ConstTensorView& t : std::initializer_list<ConstTensorView>{a.q, a.k, a.v, a.o, a.dq, a.dk, a.dv})
    if (!fits(t)) return false;
  if (a.dout.dtype != DType::f32 && !fits(a.dout)) return false;
  // Of other head_dims cuDNN's workspace grows with sequences times the longest, not with the tokens.
  const int64_t d = a.shape.head_dim;
  if (d % 16 != 0) return false;
  switch (library.capability / 10) {
    case 9:
      return library.version >= 92500;
    case 10:
      return library.version >= 91800 && (d <= 128 || (d == 256 && library.version >= 92300));
    default:
      return false;
  }
}

size_t cudnn_workspace(const AttentionArgs&, const AttentionLibrary&) {
  return kCudnnEngine;
}

size_t cudnn_workspace(const AttentionBackwardArgs& a, const AttentionLibrary& library) {
  const AttentionShape& s = a.shape;
  int64_t floats = a.lse.stride;
  if (library.capability / 10 == 9) floats += a.dq.stride;
  if (s.heads != s.kv_heads) floats += s.heads / s.kv_heads * (a.dk.stride + a.dv.stride);
  return rounded(static_cast<size_t>(token_class(a.q.rows) * floats) * sizeof(float)) + kCudnnEngine;
}

size_t cudnn_converted(const AttentionArgs&) {
  return 0;
}

size_t cudnn_converted(const AttentionBackwardArgs& a) {
  return a.dout.dtype == DType::f32 ? rounded(static_cast<size_t>(a.dout.rows * a.dout.cols) * sizeof(bf16)) : 0;
}

int64_t power_class(int64_t n, int64_t least) {
  int64_t c = 1;
  while (c < n || c < least) c *= 2;
  return c;
}

int64_t token_class(int64_t tokens) {
  if (tokens <= 256) return 256;
  const int64_t quarter = power_class(tokens, 1) / 8;  // of the power of two below
  return (tokens + quarter - 1) / quarter * quarter;
}

}  // namespace bantam
