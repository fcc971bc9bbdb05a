// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/cuda_ops.h"
#include "nf4_encode.h"
#include "quantize_nf4.h"
#include "weight_view.h"

namespace bantam::cuda {

namespace {
constexpr int kThreads = 128;
constexpr int64_t kBlock = WeightView::kBlock;

// Sixteen lanes a block of 64, four neighbours each. `quads`: how many fours may be loaded at once; `pairs`: whether
// two bytes of codes may be stored at once.
template <class X>
__global__ void __launch_bounds__(kThreads)
    quantize_nf4_kernel(const X* __restrict__ x, int64_t n, int64_t quads, uint8_t* __restrict__ codes, bool pairs,
                        float* __restrict__ absmax) {
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, i = 4 * quad;
  float v[4];
  if (quad < quads) {
    load4(x + i, v);
  } else {
    CU_UNROLL
    for (int j = 0; j < 4; ++j) v[j] = i + j < n ? load(x + i + j) : 0.0f;
  }
  float top = 0.0f;  // fmaxf passes over NaN
  CU_UNROLL
  for (int j = 0; j < 4; ++j) top = fmaxf(top, fabsf(v[j]));
  CU_UNROLL
  for (int o = 8; o > 0; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
  if (i >= n) return;

  const int64_t block = i / kBlock;
  const bool tail = (block + 1) * kBlock > n;
  const Nf4Scale scale(top, tail);
  if (i % kBlock == 0) absmax[block] = scale.absmax;
  int code[4];
  CU_UNROLL
  for (int j = 0; j < 4; ++j) code[j] = nf4_code(scale.scaled(v[j], tail));
  const int low = code[0] << 4 | code[1], high = code[2] << 4 | code[3];
  if (pairs && i + 2 < n) {
    reinterpret_cast<uint16_t*>(codes)[quad] = static_cast<uint16_t>(high << 8 | low);
  } else {
    codes[2 * quad] = static_cast<uint8_t>(low);
    if (i + 2 < n) codes[2 * quad + 1] = static_cast<uint8_t>(high);
  }
}
}  // namespace

void quantize_nf4(Context&, const QuantizeNf4Args& args) {
  require_float(args.x.dtype, "quantize_nf4", "x");
  const int64_t n = args.x.rows * args.x.cols;
  if (n == 0) return;
  const bool aligned = rows_aligned4(args.x.data, 0, args.x.dtype);
  const bool pairs = reinterpret_cast<uintptr_t>(args.codes) % 2 == 0;
  with_float_type(args.x.dtype, [&]<class X>() {
    launch(quantize_nf4_kernel<X>, blocks_for(n, 4 * kThreads), kThreads, 0, static_cast<const X*>(args.x.data), n,
           aligned ? n / 4 : 0, args.codes, pairs, args.absmax);
  });
}

}  // namespace bantam::cuda
