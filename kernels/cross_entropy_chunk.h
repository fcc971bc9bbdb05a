// SPDX-License-Identifier: Apache-2.0
// How chunked_cross_entropy cuts its scratch, the same on every backend. Not a public header.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bantam {

/// Offsets of the parts for a chunk of `rows` rows, each 64-byte aligned. Sizes too large for size_t become SIZE_MAX.
struct CrossEntropyChunk {
  int64_t logits_stride;  ///< floats from one row of logits to the next: whole cache lines
  size_t logits = 0;      ///< [rows, V] f32, later softmax - onehot
  size_t hidden;          ///< [rows, C] gathered rows, room for f32
  size_t gradient;        ///< [rows, C] f32
  size_t index;           ///< [rows] int64: the rows of `hidden` in this chunk
  size_t bytes;

  constexpr CrossEntropyChunk(int64_t rows, int64_t hidden_size, int64_t vocab_size)
      : logits_stride((vocab_size + 15) / 16 * 16),
        hidden(part(rows, logits_stride, 4)),
        gradient(add(hidden, part(rows, hidden_size, 4))),
        index(add(gradient, part(rows, hidden_size, 4))),
        bytes(add(index, part(rows, 1, 8))) {}

  /// See cross_entropy_chunk_rows(). Here, since a backend library links nothing of bantam.
  static constexpr int64_t most_rows(size_t budget, int64_t max_rows, int64_t hidden_size, int64_t vocab_size) {
    int64_t fits = 1, too_many = (max_rows < 1 ? 1 : max_rows) + 1;
    while (too_many - fits > 1) {
      const int64_t rows = fits + (too_many - fits) / 2;
      (CrossEntropyChunk(rows, hidden_size, vocab_size).bytes <= budget ? fits : too_many) = rows;
    }
    return fits;
  }

 private:
  static constexpr size_t add(size_t a, size_t b) {
    size_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
  }
  static constexpr size_t part(int64_t rows, int64_t cols, size_t size) {
    size_t n = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(rows), static_cast<size_t>(cols), &n) ||
        __builtin_mul_overflow(n, size, &n) || n > SIZE_MAX - 63)
      return SIZE_MAX;
    return (n + 63) / 64 * 64;
  }
};

}  // namespace bantam
