// SPDX-License-Identifier: Apache-2.0
// What the emulated device's ops take beside their arguments: a workspace that is what device_scratch() says, and
// decoded weights that are kept in slots, which changes no number; and copies to host memory beside the ops.
#include <dlfcn.h>

#include <algorithm>
#include <functional>

#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/cross_entropy.h"
#include "kernels/device_buffer.h"
#include "kernels/device_scratch.h"
#include "kernels/error.h"
#include "kernels/grad_norm.h"
#include "kernels/product.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/device_harness.h"

#ifdef BANTAM_CUDA_ON_CPU
using namespace bantam;
using namespace bantam::test;

namespace {

struct Device {
  Context ctx{{.num_threads = 1, .backend = BANTAM_CUDA_ON_CPU}};
  const Backend& backend = ctx.backend();
  Device() { give_back(); }
  ~Device() { give_back(); }
  void give_back() const {
    backend.reserve_workspace(0);
    backend.reserve_decoded_weights(nullptr, 0);
    backend.reserve_staging(0);
  }
  // Runs f; the workspace that it asked for.
  template <class F>
  size_t taken(F&& f) const {
    backend.reserve_workspace(0);
    f();
    return backend.workspace_high();
  }
};

TEST_CASE("workspace: an op asks for what device_scratch says of its arguments") {
  Device d;
  constexpr int64_t kM = 70, kN = 48, kK = 33;
  for (const DType at : {DType::f32, DType::bf16})
    for (const DType bt : {DType::f32, DType::bf16})
      for (const DType ct : {DType::f32, DType::bf16})
        for (const Math math : {Math::f32, Math::bf16})
          for (const bool bias : {false, true})
            for (const int residual : {0, 1, 2}) {  // none, apart, c itself
              const DeviceMatrix a(d.ctx, at, kM, kK, random_values(kM * kK, 1)),
                  b(d.ctx, bt, kN, kK, random_values(kN * kK, 2)), c(d.ctx, ct, kM, kN, random_values(kM * kN, 3)),
                  r(d.ctx, DType::bf16, kM, kN, random_values(kM * kN, 4));
              const DeviceVector<float> v(d.ctx, random_values(kN, 5));
              ProductArgs p{.terms = {{.a = a, .b = b}}, .bias = bias ? v.get() : nullptr, .c = c, .math = math};
              if (residual == 1) p.residual = r;
              if (residual == 2) p.residual = c;
              const size_t one = d.taken([&] { product(d.ctx, p); });
              CHECK(one == device_scratch(p));
              p.terms[p.num_terms++] = {.a = a, .b = b};
              const size_t two = d.taken([&] { product(d.ctx, p); });
              CHECK(two == device_scratch(p));
              // What is needed, in words: a copy of what changes type, and an f32 sum where something is added to a
              // bf16 c at the end, or operands are f32.
              const bool in_bf16 = math == Math::bf16 || (at == DType::bf16 && bt == DType::bf16);
              const DType t = in_bf16 ? DType::bf16 : DType::f32;
              const size_t copies = (at == t ? 0 : dense_bytes(kM, kK, t)) + (bt == t ? 0 : dense_bytes(kN, kK, t));
              const size_t sum = ct == DType::f32 ? 0 : dense_bytes(kM, kN, DType::f32);
              const bool in_place = ct == DType::f32 || in_bf16;
              const size_t room = bias ? dense_bytes(1, kN, in_place ? ct : DType::f32) : 0;
              for (const size_t bytes : {one, two}) CHECK(bytes == kLtWorkspace + copies + room + (in_bf16 ? 0 : sum));
            }
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::nf4})
    for (const DType ht : {DType::f32, DType::bf16})
      for (const Math math : {Math::f32, Math::bf16})
        for (const bool backward : {false, true}) {
          constexpr int64_t kT = 37, kC = 64, kV = 130;
          const DeviceMatrix hidden(d.ctx, ht, kT, kC, random_values(kT * kC, 6)),
              head(d.ctx, format == WeightFormat::bf16 ? DType::bf16 : DType::f32, kV, kC, random_values(kV * kC, 7)),
              dhidden(d.ctx, DType::f32, kT, kC);
          const Nf4Matrix values(kV, kC, true, 8);
          const DeviceNf4 nf4(d.ctx, values);
          const DeviceVector<float> loss(d.ctx, kT);
          std::vector<int32_t> labels(kT);
          for (size_t i = 0; i < labels.size(); ++i) labels[i] = i % 3 ? static_cast<int32_t>(i) : kIgnoreLabel;
          const DeviceBytes scratch(d.ctx, cross_entropy_scratch(9, kC, kV));
          CrossEntropyArgs e{.hidden = hidden,
                             .labels = labels.data(),
                             .head = head,
                             .math = math,
                             .loss = loss.get(),
                             .scratch = scratch.get(),
                             .scratch_bytes = cross_entropy_scratch(9, kC, kV)};
          if (format == WeightFormat::nf4) e.head = nf4;
          if (backward) e.dhidden = dhidden;
          CHECK(d.taken([&] { chunked_cross_entropy(d.ctx, e); }) == device_scratch(e));
        }
  for (const int64_t rows : {1, 64, 65, 130}) {
    const DeviceMatrix x(d.ctx, DType::f32, rows, 24, random_values(rows * 24, 9)), dx(d.ctx, DType::f32, rows, 24);
    const DeviceVector<float> w(d.ctx, random_values(24, 1)), rstd(d.ctx, random_values(rows, 2)),
        dw(d.ctx, random_values(24, 3));
    RmsNormBackwardArgs r{.x = x, .weight = w.get(), .rstd = rstd.get(), .dy = x, .dx = dx, .dweight = dw.get()};
    CHECK(d.taken([&] { rms_norm_backward(d.ctx, r); }) == device_scratch(r));
    CHECK(device_scratch(r) == static_cast<size_t>((rows + 63) / 64 * 24) * sizeof(float));
    r.dweight = nullptr;
    CHECK(d.taken([&] { rms_norm_backward(d.ctx, r); }) == device_scratch(r));
  }
  for (const int64_t n : {0, 1, 65536, 65537}) {
    const DeviceVector<float> g(d.ctx, random_values(n + 1, 10));
    const DeviceVector<double> sum(d.ctx, 1);
    const GradNormArgs a{.grad = g.get(), .n = n, .sum_of_squares = sum.get()};
    CHECK(d.taken([&] { grad_norm(d.ctx, a); }) == device_scratch(a));
  }
  const std::vector<int32_t> cu = {0, 3, 4, 11};
  const DeviceMatrix q(d.ctx, DType::f32, 11, 2 * 16, random_values(11 * 32, 11)), o(d.ctx, DType::f32, 11, 32),
      lse(d.ctx, DType::f32, 11, 2), delta(d.ctx, DType::f32, 11, 2), dq(d.ctx, DType::f32, 11, 32),
      dk(d.ctx, DType::f32, 11, 32), dv(d.ctx, DType::f32, 11, 32);
  const AttentionShape shape{cu.data(), cu.data(), 3, 2, 2, 16, 0.25f};
  const AttentionArgs forward{.shape = shape, .q = q, .k = q, .v = q, .o = o, .lse = lse};
  CHECK(d.taken([&] { attention(d.ctx, forward); }) == device_scratch(forward));
  const AttentionBackwardArgs backward{.shape = shape,
                                       .q = q,
                                       .k = q,
                                       .v = q,
                                       .o = o,
                                       .lse = lse,
                                       .dout = q,
                                       .delta = delta,
                                       .dq = dq,
                                       .dk = dk,
                                       .dv = dv};
  CHECK(d.taken([&] { attention_backward(d.ctx, backward); }) == device_scratch(backward));
}

// Kernels that f launches.
size_t launches(const std::function<void()>& f) {
  static const auto count = reinterpret_cast<unsigned long (*)()>(
      dlsym(dlopen(BANTAM_CUDA_ON_CPU, RTLD_NOW | RTLD_NOLOAD), "coc_launch_count"));
  REQUIRE((count != nullptr));
  const unsigned long before = count();
  f();
  return count() - before;
}
TEST_CASE("products: what several of them read is converted once, and the workspace has room for it and one other") {
  Device d;
  constexpr int64_t kT = 70, kOut = 48, kIn = 33, kRank = 4;
  const DeviceMatrix dy(d.ctx, DType::f32, kT, kOut, random_values(kT * kOut, 1)),
      z(d.ctx, DType::bf16, kT, kRank, random_values(kT * kRank, 2)),
      lora_b(d.ctx, DType::bf16, kOut, kRank, random_values(kOut * kRank, 3)),
      w(d.ctx, DType::bf16, kOut, kIn, random_values(kOut * kIn, 4)), db(d.ctx, DType::f32, kOut, kRank),
      dz(d.ctx, DType::f32, kT, kRank), dx(d.ctx, DType::bf16, kT, kIn),
      lora_a(d.ctx, DType::bf16, kRank, kIn, random_values(kRank * kIn, 5));
  const ProductArgs list[] = {
      {.terms = {{dy, WeightView(z), BLayout::nn, true}}, .c = db, .math = Math::bf16},
      {.terms = {{dy, lora_b, BLayout::nn}}, .c = dz, .math = Math::bf16},
      {.terms = {{dy, w, BLayout::nn}, {dz, lora_a, BLayout::nn}}, .num_terms = 2, .c = dx, .math = Math::bf16}};
  CHECK(d.taken([&] {
    CHECK(launches([&] { products(d.ctx, {list}); }) == 2);  // dy and dz
  }) == device_scratch(ProductsArgs{list}));
  CHECK(device_scratch(ProductsArgs{list}) ==
        kLtWorkspace + dense_bytes(kT, kOut, DType::bf16) + dense_bytes(kT, kRank, DType::bf16));
  CHECK(launches([&] {
          for (const ProductArgs& p : list) product(d.ctx, p);
        }) == 4);
}

TEST_CASE("a bf16 result with a bias takes no kernel but the one that rounds the bias, an f32 one none") {
  Device d;
  const DeviceMatrix a(d.ctx, DType::bf16, 9, 16, random_values(144, 1));
  const DeviceVector<float> bias(d.ctx, random_values(16, 2));
  for (const DType type : {DType::f32, DType::bf16}) {
    const DeviceMatrix c(d.ctx, type, 9, 9), residual(d.ctx, type, 9, 9, random_values(81, 3));
    const ProductArgs p{.terms = {{.a = a, .b = a}}, .bias = bias.get(), .residual = residual, .c = c};
    CHECK(launches([&] { product(d.ctx, p); }) == (type == DType::bf16 ? 1 : 0));
  }
}

TEST_CASE("workspace: after a reserve nothing larger is given, and nothing is allocated") {
  Device d;
  const DeviceMatrix a(d.ctx, DType::f32, 9, 40, random_values(360, 1)), c(d.ctx, DType::bf16, 9, 9);
  const ProductArgs p{.terms = {{.a = a, .b = a}}, .c = c, .math = Math::bf16};
  const size_t need = device_scratch(p);
  d.backend.reserve_workspace(need);
  setenv("COC_FAIL", "cudaMalloc:2", 1);
  product(d.ctx, p);
  CHECK(d.backend.workspace_high() == need);
  const auto first = [&] {
    unsetenv("COC_FAIL");
    return c.host();
  }();
  d.backend.reserve_workspace(need - 1);  // the memory is there, the permission is not
  CHECK_THROWS_WITH_AS(product(d.ctx, p),
                       str("CUDA: an op asks for ", need, " bytes of workspace; ", need - 1, " are reserved").c_str(),
                       Error);
  d.backend.reserve_workspace(0);
  CHECK(d.backend.workspace_high() == 0);
  product(d.ctx, p);  // grows
  CHECK(c.host() == first);
  setenv("COC_FAIL", "cudaMalloc:2", 1);
  CHECK_THROWS_WITH_AS(d.backend.reserve_workspace(2 * need), doctest::Contains("no room for"), Error);
  unsetenv("COC_FAIL");
}

// Products with several nf4 matrices in an order with repetitions, each asked for one ahead; nothing is looked at
// before the last was launched.
struct Sequence {
  static constexpr int64_t kM = 5;
  Device& d;
  std::vector<Nf4Matrix> values;
  std::vector<std::unique_ptr<DeviceNf4>> weights;
  std::vector<std::unique_ptr<DeviceMatrix>> a;
  explicit Sequence(Device& device) : d(device) {
    values.reserve(5);
    for (unsigned i = 0; i < 5; ++i) {
      const int64_t n = i < 3 ? 48 : 80, k = i < 3 ? 40 : 64;
      values.emplace_back(n, k, i % 2 == 0, 20 + 3 * i);
      weights.push_back(std::make_unique<DeviceNf4>(d.ctx, values.back()));
      a.push_back(std::make_unique<DeviceMatrix>(d.ctx, DType::f32, kM, k, random_values(kM * k, 50 + i)));
    }
  }
  size_t bytes(size_t i, Math math) const { return decoded_bytes(*weights[i], math); }
  std::vector<std::vector<float>> run(const std::vector<size_t>& order, Math math, const std::vector<size_t>& slots,
                                      bool ahead = true) {
    d.backend.reserve_decoded_weights(slots.data(), slots.size());
    std::vector<std::unique_ptr<DeviceMatrix>> c;
    for (const size_t i : order) c.push_back(std::make_unique<DeviceMatrix>(d.ctx, DType::f32, kM, values[i].rows));
    for (size_t k = 0; k < order.size(); ++k) {
      if (ahead && k + 1 < order.size()) d.backend.prefetch_weight(d.ctx, *weights[order[k + 1]], math);
      product(d.ctx, {.terms = {{.a = *a[order[k]], .b = *weights[order[k]]}}, .c = *c[k], .math = math});
    }
    std::vector<std::vector<float>> out;
    for (const auto& m : c) out.push_back(m->host());
    return out;
  }
};

TEST_CASE("decoded weights: the numbers are the same whatever is kept, and what is kept is not decoded again") {
  Device d;
  Sequence s(d);
  const std::vector<size_t> order = {0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4};
  for (const Math math : {Math::f32, Math::bf16}) {
    const size_t small = s.bytes(0, math), large = s.bytes(4, math);
    REQUIRE(small < large);
    const auto want = s.run(order, math, {});
    const auto decodes = [&](const std::vector<size_t>& slots, bool ahead) {
      const size_t before = d.backend.weights_decoded(false), before_ahead = d.backend.weights_decoded(true);
      CHECK(s.run(order, math, slots, ahead) == want);
      const size_t n = d.backend.weights_decoded(false) - before;
      // With two slots of a kind, all but the first.
      const bool pairs = std::count(slots.begin(), slots.end(), s.bytes(4, math)) > 1;
      CHECK(d.backend.weights_decoded(true) - before_ahead == (ahead && pairs ? n - 1 : 0));
      d.backend.reserve_decoded_weights(nullptr, 0);
      return n;
    };
    for (const bool ahead : {true, false}) {
      CAPTURE(ahead);
      CHECK(decodes({}, ahead) == order.size());
      // Two slots of the least recently used: only a turn finds what it left (4 and 3, 0 and 1, nothing at the end).
      CHECK(decodes({large, large}, ahead) == 5 + 3 + 3);
      CHECK(decodes({small, small, small, large, large}, ahead) == 5);  // all of them
      CHECK(decodes({small, small, large, large}, ahead) == 2 + 3 + 1 + 1);
      CHECK(decodes({large, large, large, large, large}, ahead) == 5);
    }
    for (const bool ahead : {true, false}) {  // one slot of a kind: only a repetition is found
      CHECK(decodes({small, large}, ahead) == (9 - 2) + (6 - 2));
      CHECK(decodes({large}, ahead) == 15 - 2);
    }
    d.backend.reserve_decoded_weights(&small, 1);
    CHECK_THROWS_WITH_AS(
        s.run({0, 4}, math, {small}),
        str("CUDA: a decoded weight of ", large, " bytes; the largest slot that is reserved has ", small).c_str(),
        Error);
  }
}

TEST_CASE("decoded weights: what was asked for ahead stays until a product reads it") {
  Device d;
  Sequence s(d);
  const size_t slot = s.bytes(0, Math::f32), slots[] = {slot, slot};
  d.backend.reserve_decoded_weights(slots, 2);
  const size_t before = d.backend.weights_decoded(false);
  const auto decoded = [&] { return d.backend.weights_decoded(false) - before; };
  for (const size_t i : {0, 1, 2}) d.backend.prefetch_weight(d.ctx, *s.weights[i], Math::f32);
  CHECK(decoded() == 2);  // there is no room for the third
  const DeviceMatrix c(d.ctx, DType::f32, Sequence::kM, 48);
  for (const size_t i : {1, 0, 2}) {
    product(d.ctx, {.terms = {{.a = *s.a[i], .b = *s.weights[i]}}, .c = c});
    CHECK(decoded() == (i == 2 ? 3 : 2));
  }
}

TEST_CASE("decoded weights: codes that change, or whose memory is freed, are decoded again") {
  Device d;
  const Nf4Matrix first(48, 64, false, 1), other(48, 64, false, 2);
  const size_t slot = dense_bytes(48, 64, DType::f32);
  d.backend.reserve_decoded_weights(&slot, 1);
  auto w = std::make_unique<DeviceNf4>(d.ctx, first);
  const DeviceMatrix a(d.ctx, DType::f32, 3, 64, random_values(3 * 64, 3)), c(d.ctx, DType::f32, 3, 48);
  const auto run = [&] {
    product(d.ctx, {.terms = {{.a = a, .b = *w}}, .c = c});
    return c.host();
  };
  const auto before = run();
  size_t n = d.backend.weights_decoded(false);
  CHECK(run() == before);
  CHECK(d.backend.weights_decoded(false) == n);
  // The same codes at the same place with one byte more: forgotten, whatever part is written.
  const WeightView view = *w;
  auto* codes = static_cast<char*>(const_cast<void*>(view.data));
  d.backend.upload(codes + 5, other.codes.data() + 5, 1);
  CHECK(run() == run());
  CHECK(d.backend.weights_decoded(false) == n + 1);
  d.backend.upload(codes, other.codes.data(), other.codes.size());
  const auto changed = run();
  CHECK(changed != before);
  d.backend.fill(codes, 0x77, other.codes.size());
  for (const float v : run()) CHECK(v == 0.0f);  // code 7 is zero
  n = d.backend.weights_decoded(false);
  CHECK(run() == std::vector<float>(3 * 48, 0.0f));
  CHECK(d.backend.weights_decoded(false) == n);
  w = std::make_unique<DeviceNf4>(d.ctx, first);
  CHECK(run() == before);
}

TEST_CASE("staging: what upload_async sends arrives whole and in order, through as much memory as was reserved") {
  Device d;
  constexpr size_t kBytes = 1000, kCopies = 23;
  const DeviceVector<uint8_t> to(d.ctx, kBytes * kCopies), again(d.ctx, kBytes);
  const size_t pinned = d.backend.memory_use().pinned;
  d.backend.reserve_staging(staging_bytes(kBytes));
  CHECK(d.backend.memory_use().pinned == pinned + staging_bytes(kBytes));
  std::vector<uint8_t> host(kBytes), want;
  for (size_t k = 0; k < kCopies; ++k) {
    for (size_t i = 0; i < kBytes; ++i) host[i] = static_cast<uint8_t>(k * 31 + i);
    want.insert(want.end(), host.begin(), host.end());
    d.backend.upload_async(to.get() + k * kBytes, host.data(), kBytes);
    d.backend.upload_async(again.get(), host.data(), kBytes / 2 + k);  // sizes vary, so that halves fill unevenly
  }
  CHECK(to.host() == want);
  CHECK(again.host()[0] == host[0]);
  CHECK(d.backend.staging_high() == kBytes);
  CHECK_THROWS_AS(d.backend.upload_async(to.get(), host.data(), 2 * kBytes), Error);
  CHECK(d.backend.memory_use().pinned == pinned + staging_bytes(kBytes));
  d.backend.reserve_staging(0);
  CHECK(d.backend.memory_use().pinned == pinned);
}

TEST_CASE("pinned: a mark says when copies from and to pinned memory are done") {
  Device d;
  constexpr size_t kBytes = 4096;
  const DeviceVector<uint8_t> there(d.ctx, kBytes);
  auto* const from = static_cast<uint8_t*>(d.backend.allocate_pinned(kBytes));
  auto* const to = static_cast<uint8_t*>(d.backend.allocate_pinned(kBytes));
  REQUIRE((from != nullptr && to != nullptr));
  for (int k = 0; k < 5; ++k) {
    if (k > 0) d.backend.wait_for(0);  // from may be written again
    std::fill_n(from, kBytes, static_cast<uint8_t>(10 + k));
    d.backend.upload_pinned(there.get(), from, kBytes);
    d.backend.mark(0);
    d.backend.download_pinned(to, there.get(), kBytes);
    d.backend.mark(1);
    d.backend.wait_for(1);
    CHECK(std::count(to, to + kBytes, 10 + k) == kBytes);
    CHECK(d.backend.reached(0));
    CHECK(d.backend.reached(1));
  }
  d.backend.release_pinned(from);
  d.backend.release_pinned(to);
}

TEST_CASE("host copies: what ops leave in one buffer goes out, comes back into two, and nothing waits for the device") {
  Device d;
  constexpr int64_t kRows = 9, kCols = 40;
  constexpr size_t kBytes = kRows * kCols * sizeof(float);
  constexpr int kRounds = 12;  // a wait that is missing shows in one of them, in whatever order streams run
  const auto count = reinterpret_cast<unsigned long (*)()>(
      dlsym(dlopen(BANTAM_CUDA_ON_CPU, RTLD_NOW | RTLD_NOLOAD), "coc_sync_count"));
  std::vector<std::unique_ptr<DeviceMatrix>> x, y;
  std::vector<std::vector<float>> values;
  for (int r = 0; r < kRounds; ++r) {
    values.push_back(random_values(kRows * kCols, 70 + static_cast<unsigned>(r)));
    x.push_back(std::make_unique<DeviceMatrix>(d.ctx, DType::f32, kRows, kCols, values.back()));
    y.push_back(std::make_unique<DeviceMatrix>(d.ctx, DType::f32, kRows, kCols));
  }
  const DeviceMatrix one(d.ctx, DType::f32, kRows, kCols), even(d.ctx, DType::f32, kRows, kCols),
      odd(d.ctx, DType::f32, kRows, kCols);
  const TensorView back[] = {even, odd};
  CHECK(d.backend.memory_use().pinned == 0);
  {
    const PinnedBuffer host(d.backend, kRounds * kBytes, "a test");
    CHECK(d.backend.memory_use().pinned == kRounds * kBytes);
    char* const at = static_cast<char*>(host.data());
    const auto load = [&](int r) {
      d.backend.copy_in(back[r % 2].data, at + static_cast<size_t>(r) * kBytes, kBytes, r % 2);
    };
    const unsigned long before = count();
    for (int sweep = 0; sweep < 2; ++sweep) {  // host memory is used again as well
      for (int r = 0; r < kRounds; ++r) {
        copy(d.ctx, {.x = *x[static_cast<size_t>(r)], .y = one});
        d.backend.copy_out(at + static_cast<size_t>(r) * kBytes, TensorView(one).data, kBytes, 2);
        copy(d.ctx, {.x = one, .y = *y[static_cast<size_t>(r)]});  // beside it
        d.backend.wait_copy(2);
        d.backend.fill(TensorView(one).data, 0xff, kBytes);
      }
      load(kRounds - 1);
      for (int r = kRounds; r-- > 0;) {
        d.backend.wait_copy(r % 2);
        if (r > 0) load(r - 1);
        copy(d.ctx, {.x = back[r % 2], .y = *y[static_cast<size_t>(r)]});
        d.backend.fill(back[r % 2].data, 0xff, kBytes);
      }
    }
    CHECK(count() == before);
    for (size_t r = 0; r < values.size(); ++r) CHECK(y[r]->host() == values[r]);
    for (int r = 0; r < kRounds; ++r) load(r);  // nobody waits: the end of the memory does
  }
  CHECK(d.backend.memory_use().pinned == 0);
  setenv("COC_FAIL", "cudaMallocHost:2", 1);
  CHECK_THROWS_WITH_AS(PinnedBuffer(d.backend, 77, "a test"),
                       doctest::Contains("cannot reserve 77 bytes of pinned host memory for a test"), Error);
  unsetenv("COC_FAIL");
}

}  // namespace
#endif
