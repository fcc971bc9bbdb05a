// SPDX-License-Identifier: Apache-2.0
#include "cuda/cu_portable.cuh"
// The portable header comes first.
#include "cuda/cuda_ops.h"
#include "cuda/quads.cuh"
#include "gated_act.h"

namespace bantam::cuda {

namespace {
// s = 1 / (1 + e^-x) and t = 1 - s, both without cancellation or overflow.
struct Sigmoid {
  float s, t;
};
__device__ __forceinline__ Sigmoid sigmoid(float x) {
  const float e = expf(-fabsf(x)), large = 1.0f / (1.0f + e), small = e * large;
  return x < 0.0f ? Sigmoid{small, large} : Sigmoid{large, small};
}

struct ActAndSlope {
  float act, slope;
};
__device__ __forceinline__ ActAndSlope activate(Act act, float x) {  // act is the same for all threads
  if (act == Act::silu) {
    const Sigmoid g = sigmoid(x);
    return {x * g.s, g.s * fmaf(x, g.t, 1.0f)};
  }
  // gelu_tanh: 0.5 (1 + tanh u) is the sigmoid of 2u, which does not cancel for negative x.
  constexpr float kTwo = 1.59576912f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
  // Past 30 the sigmoid is 0 or 1 already; without the bound x^3 overflows.
  const float c = fminf(fmaxf(x, -30.0f), 30.0f), square = c * c;
  const Sigmoid g = sigmoid(c * kTwo * fmaf(square, kCubic, 1.0f));
  const float slope = fmaf(c * (g.s * g.t), kTwo * fmaf(square, 3.0f * kCubic, 1.0f), g.s);
  return {x * g.s, x != x ? x : slope};  // fmaxf drops a NaN
}

// y may be gate or up, and below dgate gate and dup up: a thread writes only what it alone has read.
template <class T>
__global__ void __launch_bounds__(kQuadThreads)
    gated_act_kernel(const T* gate, int64_t gate_stride, const T* up, int64_t up_stride, Act act, T* y,
                     int64_t y_stride, int cols, int quads, int blocks) {
  const auto [row, quad] = row_quad(blocks);
  const int i = 4 * quad;
  if (i >= cols) return;
  float g[4], u[4];
  load_some(gate + row * gate_stride, i, cols, quads, g);
  const int n = load_some(up + row * up_stride, i, cols, quads, u);
  CU_UNROLL
  for (int j = 0; j < 4; ++j) g[j] = activate(act, g[j]).act * u[j];
  store_some(y + row * y_stride, i, n, quads, g);
}

// The types of the outputs are looked up: the branch is the same for all threads, and there are 4 kernels, not 16.
template <class T, class Dy>
__global__ void __launch_bounds__(kQuadThreads)
    gated_act_backward_kernel(const T* gate, int64_t gate_stride, const T* up, int64_t up_stride,
                              const Dy* __restrict__ dy, int64_t dy_stride, Act act, void* dgate, DType dgate_type,
                              int64_t dgate_stride, bool dgate_add, void* dup, DType dup_type, int64_t dup_stride,
                              bool dup_add, int cols, int quads, int blocks) {
  const auto [row, quad] = row_quad(blocks);
  const int i = 4 * quad;
  if (i >= cols) return;
  float g[4], u[4], d[4];
  load_some(gate + row * gate_stride, i, cols, quads, g);
  load_some(up + row * up_stride, i, cols, quads, u);
  const int n = load_some(dy + row * dy_stride, i, cols, quads, d);
  CU_UNROLL
  for (int j = 0; j < 4; ++j) {
    const ActAndSlope f = activate(act, g[j]);
    g[j] = d[j] * u[j] * f.slope;
    u[j] = d[j] * f.act;
  }
  const auto put = [&](void* to, DType type, int64_t at, bool add, float(&v)[4]) {
    if (!to) return;
    if (type == DType::bf16)
      put_some(static_cast<bf16*>(to) + at, i, n, quads, add, v);
    else
      put_some(static_cast<float*>(to) + at, i, n, quads, add, v);
  };
  put(dgate, dgate_type, row * dgate_stride, dgate_add, g);
  put(dup, dup_type, row * dup_stride, dup_add, u);
}
}  // namespace

void gated_act(Context&, const GatedActArgs& args) {
  const ConstTensorView &gate = args.gate, &up = args.up;
  const TensorView& y = args.y;
  require_float(gate.dtype, "gated_act", "gate");
  if (gate.rows == 0 || gate.cols == 0) return;
  const int cols = columns_of(gate, "gated_act"), blocks = blocks_per_row((cols + 3) / 4);
  const int quads = rows_aligned4(gate) && rows_aligned4(up) && rows_aligned4(y) ? cols / 4 : 0;
  with_float_type(gate.dtype, [&]<class T>() {
    launch(gated_act_kernel<T>, gate.rows * blocks, kQuadThreads, 0, static_cast<const T*>(gate.data), gate.stride,
           static_cast<const T*>(up.data), up.stride, args.act, static_cast<T*>(y.data), y.stride, cols, quads, blocks);
  });
}

void gated_act_backward(Context&, const GatedActBackwardArgs& args) {
  const ConstTensorView &gate = args.gate, &up = args.up, &dy = args.dy;
  const TensorView &dgate = args.dgate, &dup = args.dup;
  require_float(gate.dtype, "gated_act_backward", "gate");
  require_float(dy.dtype, "gated_act_backward", "dy");
  if (dgate) require_float(dgate.dtype, "gated_act_backward", "dgate");
  if (dup) require_float(dup.dtype, "gated_act_backward", "dup");
  if (gate.rows == 0 || gate.cols == 0 || (!dgate && !dup)) return;
  const int cols = columns_of(gate, "gated_act_backward"), blocks = blocks_per_row((cols + 3) / 4);
  const bool vector = rows_aligned4(gate) && rows_aligned4(up) && rows_aligned4(dy) &&
                      (!dgate || rows_aligned4(dgate)) && (!dup || rows_aligned4(dup));
  with_float_type(gate.dtype, [&]<class T>() {
    with_float_type(dy.dtype, [&]<class Dy>() {
      launch(gated_act_backward_kernel<T, Dy>, gate.rows * blocks, kQuadThreads, 0, static_cast<const T*>(gate.data),
             gate.stride, static_cast<const T*>(up.data), up.stride, static_cast<const Dy*>(dy.data), dy.stride,
             args.act, dgate.data, dgate.dtype, dgate.stride, args.dgate_mode == GradMode::add, dup.data, dup.dtype,
             dup.stride, args.dup_mode == GradMode::add, cols, vector ? cols / 4 : 0, blocks);
    });
  });
}

}  // namespace bantam::cuda
