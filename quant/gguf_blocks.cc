// SPDX-License-Identifier: Apache-2.0
// Decoding of ggml's block formats, value for value as ggml's reference dequantisation.
#include <cstring>

#include "../kernels/error.h"
#include "gguf.h"

namespace bantam {

namespace {

constexpr int kBlock = 32;

struct BlockQ4_0 {
  uint16_t d;         ///< scale, f16
  uint8_t codes[16];  ///< element i in the low nibble of byte i, element i + 16 in its high nibble; minus 8
};
struct BlockQ4_1 {
  uint16_t d, m;  ///< scale and minimum, f16
  uint8_t codes[16];
};
struct BlockQ8_0 {
  uint16_t d;
  int8_t codes[32];
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ8_0) == 34);

template <class Block, class Decode>
void decode_blocks(const std::byte* p, int64_t n, float* out, Decode decode) {
  for (int64_t i = 0; i < n; i += kBlock, p += sizeof(Block), out += kBlock) {
    Block b;
    std::memcpy(&b, p, sizeof b);
    decode(b, out);
  }
}

}  // namespace

void gguf_decode_rows(const GgufTensor& t, int64_t r0, int64_t rows, float* out) {
  const int64_t cols = t.cols(), n = rows * cols, first = r0 * cols;
  if (r0 < 0 || rows < 0 || r0 > t.rows() || rows > t.rows() - r0)
    throw Error(ErrorCode::internal, str("tensor '", t.name, "': rows ", r0, " to ", r0 + rows, " of ", t.rows()));
  switch (t.type) {
    case 0:
      if (n > 0) std::memcpy(out, t.data + first * 4, static_cast<size_t>(n) * 4);
      return;
    case 1:
    case 30:
      for (int64_t i = 0; i < n; ++i) {
        uint16_t h;
        std::memcpy(&h, t.data + (first + i) * 2, 2);
        out[i] = t.type == 1 ? f16_to_f32(h) : to_f32(bf16{h});
      }
      return;
    case 2:
      decode_blocks<BlockQ4_0>(t.data + first / kBlock * sizeof(BlockQ4_0), n, out, [](const BlockQ4_0& b, float* y) {
        const float d = f16_to_f32(b.d);
        for (int i = 0; i < 16; ++i) {
          y[i] = static_cast<float>((b.codes[i] & 15) - 8) * d;
          y[i + 16] = static_cast<float>((b.codes[i] >> 4) - 8) * d;
        }
      });
      return;
    case 3:
      decode_blocks<BlockQ4_1>(t.data + first / kBlock * sizeof(BlockQ4_1), n, out, [](const BlockQ4_1& b, float* y) {
        const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
        for (int i = 0; i < 16; ++i) {
          y[i] = static_cast<float>(b.codes[i] & 15) * d + m;
          y[i + 16] = static_cast<float>(b.codes[i] >> 4) * d + m;
        }
      });
      return;
    case 8:
      decode_blocks<BlockQ8_0>(t.data + first / kBlock * sizeof(BlockQ8_0), n, out, [](const BlockQ8_0& b, float* y) {
        const float d = f16_to_f32(b.d);
        for (int i = 0; i < kBlock; ++i) y[i] = static_cast<float>(b.codes[i]) * d;
      });
      return;
    default:
      throw Error(ErrorCode::model,
                  str("tensor '", t.name, "' is stored as ", gguf_type_name(t.type),
                      "; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are read"),
                  "convert the model to one of these, or use its safetensors");
  }
}

}  // namespace bantam
