// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "cpu_ops.h"
#include "nf4_encode.h"
#include "quantize_nf4.h"
#include "weight_view.h"

namespace bantam {

namespace {

constexpr int64_t kBlock = WeightView::kBlock;

// In lanes, which the compiler vectorises.
float max_abs(const float* x) {
  float lanes[8] = {};
  for (int64_t i = 0; i < kBlock; i += 8)
    for (int l = 0; l < 8; ++l) {
      const float a = std::fabs(x[i + l]);
      lanes[l] = a > lanes[l] ? a : lanes[l];
    }
  return *std::max_element(lanes, lanes + 8);
}

void encode_block(const float* x, bool tail, uint8_t* codes, float* absmax) {
  const Nf4Scale scale(max_abs(x), tail);
  *absmax = scale.absmax;
  int32_t code[kBlock];
  for (int i = 0; i < kBlock; ++i) code[i] = nf4_code(scale.scaled(x[i], tail));
  for (int i = 0; i < kBlock / 2; ++i) codes[i] = static_cast<uint8_t>(code[2 * i] << 4 | code[2 * i + 1]);
}

}  // namespace

void nf4_quantise(const float* x, int64_t n, uint8_t* codes, float* absmax) {
  const int64_t whole = n / kBlock, tail = n % kBlock;
  for (int64_t b = 0; b < whole; ++b) encode_block(x + b * kBlock, false, codes + b * kBlock / 2, absmax + b);
  if (tail == 0) return;
  float values[kBlock] = {};
  uint8_t packed[kBlock / 2];
  std::copy_n(x + whole * kBlock, tail, values);
  encode_block(values, true, packed, absmax + whole);
  std::copy_n(packed, (tail + 1) / 2, codes + whole * kBlock / 2);
}

void cpu::quantize_nf4(Context& ctx, const QuantizeNf4Args& args) {
  constexpr int64_t kPiece = 64 * kBlock;
  parallel_for(ctx, args.x.rows * args.x.cols, kPiece, [&](int64_t begin, int64_t end, int) {
    with_float_type(args.x.dtype, [&]<class X>() {
      const X* x = static_cast<const X*>(args.x.data) + begin;
      float converted[kPiece];
      const float* values;
      if constexpr (std::is_same_v<X, float>) {
        values = x;
      } else {
        std::transform(x, x + (end - begin), converted, [](X v) { return to_f32(v); });
        values = converted;
      }
      nf4_quantise(values, end - begin, args.codes + begin / 2, args.absmax + begin / kBlock);
    });
  });
}

}  // namespace bantam
