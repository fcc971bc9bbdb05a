// SPDX-License-Identifier: Apache-2.0
// Attention through cuDNN on the emulated device (kernels/cuda_on_cpu/fake_cudnn.cc), a Hopper with cuDNN 9.28.1: the
// numbers, which calls go there, what they take. The environment of the test says which device it is.
#include <dlfcn.h>

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cudnn_shapes.h"
#include "kernels/device_scratch.h"
#include "kernels/error.h"
#include "tests/kernels/device_harness.h"
#include "tests/reference/attention_reference.h"

using namespace bantam;
using namespace bantam::test;

namespace {

unsigned long symbol(const char* name, int what) {
  void* library = dlopen(BANTAM_CUDA_ON_CPU, RTLD_NOW | RTLD_NOLOAD);
  const auto f = reinterpret_cast<unsigned long (*)(int)>(dlsym(library, name));
  REQUIRE((f != nullptr));
  return f(what);
}
unsigned long count(int what) {
  return symbol("coc_cudnn_count", what);
}
enum { kForwards, kBackwards, kPlans };

struct Case {
  std::vector<int64_t> lengths;
  int64_t heads, kv_heads, head_dim;
  int64_t window = 0, pad = 0, offset = 0;
  float softcap = 0;
  DType type = DType::bf16, gradient = DType::bf16, dout = DType::bf16;
  Math math = Math::bf16;
};

struct Result {
  std::vector<float> o, lse, dq, dk, dv;
  bool operator==(const Result&) const = default;
};

struct Problem {
  Case c;
  std::vector<int32_t> cu;
  int64_t rows, width, kv_width;
  std::vector<float> q, k, v, dout;
  DeviceMatrix dq_, dk_, dv_, do_, o_, lse_, delta_, q_, k_, v_;

  static std::vector<int32_t> offsets(const std::vector<int64_t>& lengths) {
    std::vector<int32_t> cu = {0};
    for (const int64_t n : lengths) cu.push_back(static_cast<int32_t>(cu.back() + n));
    return cu;
  }
  DeviceMatrix room(Context& ctx, DType t, int64_t cols) const { return {ctx, t, rows, cols, cols + c.pad, c.offset}; }
  DeviceMatrix filled(Context& ctx, DType t, int64_t cols, const std::vector<float>& x) const {
    return {ctx, t, rows, cols, x, cols + c.pad, c.offset};
  }
  Problem(Context& ctx, const Case& x)
      : c(x),
        cu(offsets(x.lengths)),
        rows(cu.back()),
        width(x.heads * x.head_dim),
        kv_width(x.kv_heads * x.head_dim),
        q(rounded(random_values(rows * width, 1, 1.5f), x.type)),
        k(rounded(random_values(rows * kv_width, 2, 1.5f), x.type)),
        v(rounded(random_values(rows * kv_width, 3, 1.5f), x.type)),
        dout(rounded(random_values(rows * width, 4, 1.5f), x.dout)),
        dq_(room(ctx, x.gradient, width)),
        dk_(room(ctx, x.gradient, kv_width)),
        dv_(room(ctx, x.gradient, kv_width)),
        do_(filled(ctx, x.dout, width, dout)),
        o_(room(ctx, x.type, width)),
        lse_(room(ctx, DType::f32, x.heads)),
        delta_(room(ctx, DType::f32, x.heads)),
        q_(filled(ctx, x.type, width, q)),
        k_(filled(ctx, x.type, kv_width, k)),
        v_(filled(ctx, x.type, kv_width, v)) {}
  AttentionShape shape() const {
    return {cu.data(),
            cu.data(),
            static_cast<int64_t>(cu.size()) - 1,
            c.heads,
            c.kv_heads,
            c.head_dim,
            1.0f / std::sqrt(static_cast<float>(c.head_dim)),
            c.window,
            c.softcap};
  }
  AttentionArgs forward() const {
    return {.shape = shape(), .q = q_, .k = k_, .v = v_, .o = o_, .lse = lse_, .math = c.math};
  }
  AttentionBackwardArgs backward() const {
    return {.shape = shape(),
            .q = q_,
            .k = k_,
            .v = v_,
            .o = o_,
            .lse = lse_,
            .dout = do_,
            .delta = delta_,
            .dq = dq_,
            .dk = dk_,
            .dv = dv_,
            .math = c.math};
  }
  Result run(Context& ctx) const {
    attention(ctx, forward());
    attention_backward(ctx, backward());
    return {o_.host(), lse_.host(), dq_.host(), dk_.host(), dv_.host()};
  }
};

double distance(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double error = 0, norm = 1e-30;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// A step and a half of bf16: operands and results are rounded once each at most; lse is f32.
void check_oracle(const Problem& p, const Result& got) {
  const auto wide = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
  const AttentionShape s = p.shape();
  const reference::AttentionShape shape{p.cu, p.cu, s.heads, s.kv_heads, s.head_dim, s.scale, s.window, s.softcap};
  const auto forward = reference::attention(shape, wide(p.q), wide(p.k), wide(p.v));
  const reference::AttentionOutput<double> stored{wide(got.o), wide(got.lse)};
  const auto want = reference::attention_backward(shape, wide(p.q), wide(p.k), wide(p.v), stored, wide(p.dout));
  constexpr double kBound = 1.5 * kBf16Eps;
  CHECK(distance(got.o, forward.o) <= kBound);
  CHECK(distance(got.lse, forward.lse) <= 1e-6);
  CHECK(distance(got.dq, want.dq) <= kBound);
  CHECK(distance(got.dk, want.dk) <= kBound);
  CHECK(distance(got.dv, want.dv) <= kBound);
}

// What went to cuDNN: 0 none, 1 the forward, 2 the backward, 3 both.
int taken(Context& ctx, const Problem& p, Result* result = nullptr) {
  const unsigned long forwards = count(kForwards), backwards = count(kBackwards);
  const Result r = p.run(ctx);
  if (result) *result = r;
  return static_cast<int>(count(kForwards) - forwards + 2 * (count(kBackwards) - backwards));
}

TEST_CASE("cuDNN: the library says which it is") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const AttentionLibrary l = attention_library(ctx);
  CHECK(l.version == 92801);
  CHECK(l.capability == 90);
  CHECK(std::string(l.why).empty());
  Context cpu({.num_threads = 1});
  CHECK(attention_library(cpu).version == 0);
}

TEST_CASE("cuDNN: agrees with the oracle, both ways, and repeats itself bit for bit") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  // Groups, lengths below and at a class, empty sequences within and at the end, windows, rows with a rest, widths.
  for (const Case& c : std::vector<Case>{{{1}, 1, 1, 64},
                                         {{65, 1, 97}, 6, 2, 32},
                                         {{0, 33, 0, 2, 0}, 4, 1, 80},
                                         {{128}, 2, 2, 16},
                                         {{129, 5}, 2, 1, 16},
                                         {{30, 9, 17}, 4, 2, 32, 0, 8, 8},
                                         {{30, 9, 17}, 4, 2, 32, 7},
                                         {{20}, 2, 1, 16, 1},
                                         {{40}, 2, 1, 256},
                                         {{20}, 1, 1, 128, 20}}) {
    CAPTURE(c.lengths.front());
    CAPTURE(c.head_dim);
    CAPTURE(c.window);
    const Problem p(ctx, c);
    Result got;
    CHECK(taken(ctx, p, &got) == 3);
    check_oracle(p, got);
    CHECK(p.run(ctx) == got);
  }
}

TEST_CASE("cuDNN: what it does not take, the built-in attention computes, from the forward of either") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const std::vector<int64_t> lengths = {17, 0, 9};
  const Case base{lengths, 4, 2, 32};
  const auto check = [&](int want, auto change) {
    Case c = base;
    change(c);
    CAPTURE(want);
    const Problem p(ctx, c);
    Result got;
    CHECK(taken(ctx, p, &got) == want);
    check_oracle(p, got);
  };
  check(3, [](Case&) {});
  check(0, [](Case& c) { c.math = Math::f32; });
  check(0, [](Case& c) { c.type = c.gradient = c.dout = DType::f32; });
  check(0, [](Case& c) { c.softcap = 2; });
  check(0, [](Case& c) { c.head_dim = 12; });
  check(0, [](Case& c) { c.offset = 4; });
  check(0, [](Case& c) { c.pad = 4; });
  check(1, [](Case& c) { c.gradient = DType::f32; });
  check(3, [](Case& c) { c.dout = DType::f32; });
  check(3, [](Case& c) { c.dout = DType::f32, c.pad = 8; });
  check(1, [](Case& c) { c.head_dim = 24; });
  check(3, [](Case& c) { c = {std::vector<int64_t>(1024, 0), 1, 1, 16}, c.lengths[7] = 9; });
  check(0, [](Case& c) { c = {std::vector<int64_t>(1025, 0), 1, 1, 16}, c.lengths[7] = 9; });
}

TEST_CASE("cuDNN: a query that follows a cache of keys is not taken") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const Problem p(ctx, {{9}, 4, 2, 32});
  const int32_t one[] = {0, 1};
  AttentionArgs a = p.forward();
  a.shape.cu_q = one;
  a.q.rows = a.o.rows = a.lse.rows = 1;
  const unsigned long before = count(kForwards);
  attention(ctx, a);
  CHECK(count(kForwards) == before);
}

TEST_CASE("cuDNN: one plan serves all packings of a class, and no other model's") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const auto plans = [&](const Case& c) {
    const Problem p(ctx, c);
    const unsigned long before = count(kPlans);
    Result got;
    CHECK(taken(ctx, p, &got) == 3);
    check_oracle(p, got);
    return count(kPlans) - before;
  };
  CHECK(plans({{60, 70, 3, 20}, 2, 1, 48}) == 2);
  CHECK(plans({{10, 20, 100}, 2, 1, 48}) == 0);  // three are filled up to four
  CHECK(plans({{60, 0, 120, 9}, 2, 1, 48}) == 0);
  CHECK(plans({{60, 70}, 2, 1, 48}) == 2);
  CHECK(plans({{129, 7, 3, 3}, 2, 1, 48}) == 2);
  CHECK(plans({{60, 70, 3, 20}, 2, 1, 48, 5}) == 2);
  CHECK(plans({{60, 70, 3, 20}, 2, 1, 48, 70}) == 0);  // a window that holds all keys is none
  CHECK(plans({{60, 70, 3, 20}, 2, 1, 48, 0, 8}) == 2);
  CHECK(plans({{60, 70, 3, 130}, 2, 1, 48}) == 1);  // more tokens than 256: a backward's of its own
}

TEST_CASE("cuDNN: a plan that wants more than its workspace is not used, now and later") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const Problem p(ctx, {{33, 5}, 2, 1, 112});
  setenv("COC_CUDNN_WORKSPACE", std::to_string(kCudnnEngine).c_str(), 1);
  Result got, later;
  CHECK(taken(ctx, p, &got) == 0);
  unsetenv("COC_CUDNN_WORKSPACE");
  CHECK(taken(ctx, p, &later) == 0);  // what is recomputed goes the way that the forward went
  CHECK(got == later);
  check_oracle(p, got);
}

TEST_CASE("cuDNN: takes the workspace that device_scratch says, waits for nothing, allocates nothing") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const Backend& backend = ctx.backend();
  const AttentionLibrary l = attention_library(ctx);
  const Problem p(ctx, {{33, 0, 97}, 4, 2, 64, 0, 8});
  backend.reserve_workspace(0);
  attention(ctx, p.forward());
  CHECK(backend.workspace_high() == device_scratch(p.forward(), l));
  attention_backward(ctx, p.backward());
  CHECK(backend.workspace_high() == device_scratch(p.backward(), l));
  const Result want{p.o_.host(), p.lse_.host(), p.dq_.host(), p.dk_.host(), p.dv_.host()};
  backend.reserve_workspace(device_scratch(p.backward(), l));
  setenv("COC_FAIL", "cudaMalloc:2", 1);
  const unsigned long before = symbol("coc_sync_count", 0);
  attention(ctx, p.forward());
  attention_backward(ctx, p.backward());
  CHECK(symbol("coc_sync_count", 0) == before);
  unsetenv("COC_FAIL");
  CHECK(Result{p.o_.host(), p.lse_.host(), p.dq_.host(), p.dk_.host(), p.dv_.host()} == want);
  backend.reserve_workspace(device_scratch(p.backward(), l) - 1);
  CHECK_THROWS_WITH_AS(attention_backward(ctx, p.backward()), doctest::Contains("are reserved"), Error);
  backend.reserve_workspace(0);
  Case rounded_dout{{33, 0, 97}, 4, 2, 64};
  rounded_dout.dout = DType::f32;
  const Problem r(ctx, rounded_dout);
  attention(ctx, r.forward());
  attention_backward(ctx, r.backward());
  CHECK(backend.workspace_high() == device_scratch(r.backward(), l));
  // Without the rest of each row; and 130 rows of 256 as bf16.
  CHECK(device_scratch(r.backward(), l) ==
        device_scratch(p.backward(), l) - 256 * 4 * (8 + 8 + 2 * 16) + 130 * 256 * 2);
  backend.reserve_workspace(0);
}

TEST_CASE("cuDNN: a failure has its words, and says how to do without") {
  Context ctx({.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU});
  const Problem p(ctx, {{33}, 2, 1, 32});
  setenv("COC_FAIL", "cudnnBackendExecute:1", 1);
  std::string words;
  try {
    attention(ctx, p.forward());
  } catch (const Error& e) {
    words = str(e.what(), " ", e.hint());
  }
  unsetenv("COC_FAIL");
  CHECK(words.find("attention of 1 sequences of up to 128 tokens failed: CUDNN_STATUS_EXECUTION_FAILED") <
        words.size());
  CHECK(words.find("BANTAM_CUDNN=0") < words.size());
}

}  // namespace
