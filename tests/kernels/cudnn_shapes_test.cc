// SPDX-License-Identifier: Apache-2.0
// Which attention cuDNN takes, on which devices and versions, and how much workspace it may take there.
#include "kernels/cudnn_shapes.h"

#include <doctest/doctest.h>

#include <functional>
#include <initializer_list>

#include "kernels/device_scratch.h"

using namespace bantam;

namespace {

// Nothing is read through a pointer: addresses that are none of memory's.
TensorView view(DType t, int64_t cols, int64_t rows = 4096) {
  return {reinterpret_cast<void*>(uintptr_t{4096}), t, rows, cols};
}
AttentionArgs forward(int64_t heads = 32, int64_t kv_heads = 8, int64_t d = 128) {
  const TensorView q = view(DType::bf16, heads * d), k = view(DType::bf16, kv_heads * d);
  return {.shape = {.num_seqs = 4096, .heads = heads, .kv_heads = kv_heads, .head_dim = d, .scale = 1},
          .q = q,
          .k = k,
          .v = k,
          .o = q,
          .lse = view(DType::f32, heads),
          .math = Math::bf16};
}
AttentionBackwardArgs backward(int64_t heads = 32, int64_t kv_heads = 8, int64_t d = 128) {
  const AttentionArgs f = forward(heads, kv_heads, d);
  const TensorView q = view(DType::bf16, heads * d), k = view(DType::bf16, kv_heads * d);
  return {.shape = f.shape,
          .q = f.q,
          .k = f.k,
          .v = f.v,
          .o = q,
          .lse = f.lse,
          .dout = q,
          .delta = view(DType::f32, heads),
          .dq = q,
          .dk = k,
          .dv = k,
          .math = Math::bf16};
}
AttentionLibrary library(int version, int capability) {
  AttentionLibrary l;
  l.version = version;
  l.capability = capability;
  return l;
}

TEST_CASE("cuDNN: devices and versions") {
  constexpr struct {
    int version, capability;
    int64_t head_dim;
    bool forward, backward;
  } kCases[] = {
      {92801, 90, 128, true, true},   {92801, 90, 256, true, true},   {92500, 90, 64, true, true},
      {92499, 90, 128, true, false},  // no deterministic one of linear memory
      {91200, 90, 128, true, false},  {91199, 90, 128, false, false}, {0, 90, 128, false, false},
      {92801, 100, 128, true, true},  {92801, 103, 128, true, true},  {91800, 100, 128, true, true},
      {91799, 100, 128, true, false}, {92801, 100, 192, true, false}, {92801, 100, 256, true, true},
      {92299, 100, 256, true, false}, {92801, 120, 128, true, false}, {92801, 80, 128, true, false},
      {92801, 89, 128, true, false},  {91801, 80, 128, true, false},  {91800, 80, 128, false, false},
      {91800, 120, 64, false, false}, {92801, 75, 128, false, false}, {92801, 90, 264, false, false},
      {92801, 90, 100, false, false}, {92801, 90, 72, true, false},   {92801, 90, 80, true, true},
  };
  for (const auto& c : kCases) {
    CAPTURE(c.version);
    CAPTURE(c.capability);
    CAPTURE(c.head_dim);
    const AttentionLibrary l = library(c.version, c.capability);
    CHECK(cudnn_takes(forward(32, 8, c.head_dim), l) == c.forward);
    CHECK(cudnn_takes(backward(32, 8, c.head_dim), l) == c.backward);
  }
}

TEST_CASE("cuDNN: what it does not take of an attention") {
  const AttentionLibrary l = library(92801, 90);
  const auto odd = [](auto& t) {
    t.data = reinterpret_cast<decltype(t.data)>(reinterpret_cast<uintptr_t>(t.data) + 8);
  };
  const std::initializer_list<std::function<void(AttentionArgs&)>> changes = {
      [](AttentionArgs& a) { a.math = Math::f32; },
      [](AttentionArgs& a) { a.shape.softcap = 30; },
      [](AttentionArgs& a) { a.q.dtype = DType::f32; },
      [](AttentionArgs& a) { a.o.dtype = DType::f32; },
      [](AttentionArgs& a) { a.k.stride += 4; },
      [](AttentionArgs& a) { a.q.stride = int64_t{1} << 20; },  // 2^32 elements
      [&](AttentionArgs& a) { odd(a.v); },
      [&](AttentionArgs& a) { odd(a.lse); },
  };
  for (const auto& change : changes) {
    AttentionArgs a = forward();
    CHECK(cudnn_takes(a, l));
    change(a);
    CHECK_FALSE(cudnn_takes(a, l));
    CHECK(device_scratch(a, l) == device_scratch(a.shape));
  }
  AttentionArgs window = forward();
  window.shape.window = 512;
  window.k.stride += 8;
  CHECK(cudnn_takes(window, l));
  for (TensorView AttentionBackwardArgs::*m :
       {&AttentionBackwardArgs::dq, &AttentionBackwardArgs::dk, &AttentionBackwardArgs::dv}) {
    AttentionBackwardArgs b = backward();
    CHECK(cudnn_takes(b, l));
    (b.*m).dtype = DType::f32;
    CHECK_FALSE(cudnn_takes(b, l));
    b = backward();
    odd(b.*m);
    CHECK_FALSE(cudnn_takes(b, l));
  }
  AttentionBackwardArgs b = backward();
  odd(b.dout);
  CHECK_FALSE(cudnn_takes(b, l));
  b.dout.dtype = DType::f32;  // it is converted, from wherever it lies
  CHECK(cudnn_takes(b, l));
}

TEST_CASE("cuDNN: the workspace grows with the tokens, and is that of the own kernels where it is not taken") {
  const AttentionLibrary hopper = library(92801, 90), blackwell = library(92801, 100);
  const size_t fixed = kCudnnTable + kCudnnEngine, row = 32 * 128 * sizeof(float);
  CHECK(kCudnnTable % 256 == 0);
  CHECK(device_scratch(forward(), hopper) == fixed);
  // Grouped heads: dq, and dk and dv of each query head, in f32; and the sums of the softmax.
  CHECK(device_scratch(backward(), hopper) == fixed + 4096 * (3 * row + 32 * sizeof(float)));
  CHECK(device_scratch(backward(), blackwell) == fixed + 4096 * (2 * row + 32 * sizeof(float)));
  CHECK(device_scratch(backward(32, 32), hopper) == fixed + 4096 * (row + 32 * sizeof(float)));
  AttentionBackwardArgs f32 = backward();
  f32.dout.dtype = DType::f32;
  CHECK(device_scratch(f32, hopper) == device_scratch(backward(), hopper) + 4096 * 4096 * 2);
  CHECK(device_scratch(backward()) == device_scratch(backward().shape));
  CHECK(device_scratch(forward()) == device_scratch(forward().shape));
  // What cuDNN 9.28.1 takes, with 4 sequences of 1024 and with 64 of up to 4096.
  CHECK(cudnn_workspace(backward(), hopper) >= 201870336);
  CHECK(cudnn_workspace(backward(), blackwell) >= 134748288);
  AttentionBackwardArgs many = backward();
  many.q.rows = 16384;
  CHECK(cudnn_workspace(many, hopper) >= 808482176);
}

TEST_CASE("cuDNN: classes of shapes") {
  CHECK(power_class(1, 1) == 1);
  CHECK(power_class(5, 1) == 8);
  CHECK(power_class(8, 1) == 8);
  CHECK(power_class(5, 128) == 128);
  for (const auto& [n, c] : {std::pair{1, 256},
                             {256, 256},
                             {257, 320},
                             {320, 320},
                             {512, 512},
                             {513, 640},
                             {1000, 1024},
                             {1025, 1280},
                             {4096, 4096},
                             {4097, 5120}})
    CHECK(token_class(n) == c);
  for (int64_t n = 1, last = 0; n < 5000; ++n) {
    const int64_t c = token_class(n);
    CHECK((c >= n && c >= last && (n < 256 || c * 4 <= n * 5 + 4)));  // a plan for more tokens covers fewer
    last = c;
  }
  CHECK(cudnn_text(92801) == "9.28.1");
}

}  // namespace
