// SPDX-License-Identifier: Apache-2.0
// The inside of the CPU product engine: one table per ISA tier, single-threaded blocks, used by product_cpu.cc,
// attention_cpu.cc and cross_entropy_cpu.cc. Not a public header.
#pragma once
#include "product.h"

namespace bantam {

/// The end of a product on a block: c (=|+=) alpha * sum [+ bias] [+ residual], rounded once. All already at the block.
struct TileFinish {
  int64_t rows = 0, cols = 0;
  const float* sum = nullptr;  ///< f32, row stride sum_stride
  int64_t sum_stride = 0;
  float alpha = 1;
  const float* bias = nullptr;  ///< optional
  ConstTensorView residual;     ///< optional; may be c
  void* c = nullptr;            ///< f32 or bf16
  bool c_is_bf16 = false;
  int64_t c_stride = 0;
  bool add = false;
};

/// Blocks of the left operand ("a blocks") and column panels of the right one ("b panels") in the tier's own layout.
/// Element (i, j) of a product is one chain of fused multiply-adds over k in order, whatever m, n and the tile are:
/// the row contract. Padding is zero and changes nothing.
struct TileEngine {
  const char* name;
  int mr, nr;  ///< micro-tile rows and columns; panels are nr columns wide
  bool pairs;  ///< Math::bf16 takes two k a step, so that a packed k is half as large

  /// Bytes of packed b for nc columns and kc steps, and of packed a for m rows. 64-byte multiples.
  size_t (*b_bytes)(Math, int64_t nc, int64_t kc);
  size_t (*a_bytes)(Math, int64_t m, int64_t kc);
  /// Packs columns [c0, c0+nc) and reduction [k0, k0+kc) of op(b). The tail panel is filled up with zeros.
  void (*pack_b)(Math, const WeightView& b, BLayout, int64_t c0, int64_t nc, int64_t k0, int64_t kc, void* out);
  /// Packs rows [m0, m0+m) and reduction [k0, k0+kc) of a (transposed: a is stored [K, M]).
  void (*pack_a)(Math, const ConstTensorView& a, bool transposed, int64_t m0, int64_t m, int64_t k0, int64_t kc,
                 void* out);
  /// c[m, n] (f32, row stride ldc) = a * b, or += when accumulate. Only m x n elements of c are touched.
  void (*multiply)(Math, int64_t m, int64_t n, int64_t kc, const void* a, const void* b, float* c, int64_t ldc,
                   bool accumulate);
  /// Decodes elements [k0, k0+n) of row r of any weight to f32 (rounded to bf16 first for nf4 under Math::bf16).
  void (*decode_row)(Math, const WeightView& w, int64_t r, int64_t k0, int64_t n, float* out);
  /// The epilogue of the product.
  void (*finish)(const TileFinish&);
};

/// The engine of a tier; Error(device) when it was not built in.
const TileEngine& tile_engine(Isa isa);

/// Length of a slice of the reduction for total length k: depends on k and the tier's arithmetic only.
int64_t reduction_slice(const TileEngine& e, Math math, int64_t k);

}  // namespace bantam
