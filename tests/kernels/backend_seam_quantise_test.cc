// SPDX-License-Identifier: Apache-2.0
// quantize_nf4 on every backend: the bits of the host's quantiser, which quant/nf4_test compares with bitsandbytes.
#include <limits>

#include "kernels/error.h"
#include "kernels/quantize_nf4.h"
#include "tests/kernels/device_harness.h"

using namespace bantam;
using namespace bantam::test;

namespace {

struct Quantised {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> absmax;  // as bits: NaN equals NaN, -0 is not 0
  bool operator==(const Quantised&) const = default;
};
std::vector<uint32_t> bits_of(const std::vector<float>& v) {
  std::vector<uint32_t> bits(v.size());
  std::memcpy(bits.data(), v.data(), v.size() * sizeof(float));
  return bits;
}
size_t blocks_of(size_t n) {
  return (n + 63) / 64;
}

Quantised by_host(const std::vector<float>& x) {
  Quantised q;
  q.codes.resize((x.size() + 1) / 2);
  std::vector<float> absmax(blocks_of(x.size()));
  nf4_quantise(x.data(), static_cast<int64_t>(x.size()), q.codes.data(), absmax.data());
  q.absmax = bits_of(absmax);
  return q;
}

// x begins `offset` elements after an aligned address; the bytes of codes do, too. Fails when more is written.
Quantised by_op(Context& ctx, DType t, const std::vector<float>& x, int64_t cols, int64_t offset = 0) {
  const auto n = static_cast<int64_t>(x.size());
  const DeviceMatrix in(ctx, t, 1, n, x, n + 9, offset);
  const auto code_bytes = static_cast<size_t>((n + 1) / 2), before = static_cast<size_t>(offset);
  const DeviceVector<uint8_t> codes(ctx, static_cast<int64_t>(before + code_bytes) + 3);
  const DeviceVector<float> absmax(ctx, static_cast<int64_t>(blocks_of(x.size())) + 1);
  ConstTensorView view = in;
  view.rows = n / cols;
  view.cols = view.stride = cols;
  quantize_nf4(ctx, {.x = view, .codes = codes.get() + offset, .absmax = absmax.get()});
  auto all = codes.host();
  for (size_t i = 0; i < all.size(); ++i)
    if (i < before || i >= before + code_bytes) CHECK_MESSAGE(all[i] == 0xff, "written at ", i);
  auto scales = absmax.host();
  CHECK(bits_of(scales).back() == 0xffffffffu);
  scales.pop_back();
  CHECK(bits_of(in.host()) == bits_of(x));
  return {{all.begin() + offset, all.begin() + offset + static_cast<int64_t>(code_bytes)}, bits_of(scales)};
}

// Values of all sizes, ties at the middles between codes, denormals, and zero blocks, in an order that varies.
std::vector<float> some_values(int64_t n, unsigned seed) {
  auto x = random_values(n, seed);
  std::mt19937 bits(seed + 1);
  for (size_t b = 0; b < x.size(); b += 64) {
    const unsigned kind = bits() % 6;
    const float size = kind == 0 ? 1.0f : kind == 1 ? 1e-39f : kind == 2 ? 3e38f : kind == 3 ? 0.0f : 0.02f;
    for (size_t i = b; i < std::min(x.size(), b + 64); ++i) x[i] *= size;
    if (kind == 3 && b + 5 < x.size()) x[b + 5] = -0.0f;
    if (kind != 0) continue;
    x[b] = bits() % 2 ? 1.0f : -1.0f;  // a scale of 1: what follows are ties and their neighbours
    for (size_t i = b + 1; i < std::min(x.size(), b + 64); ++i) {
      const auto k = bits() % 15;
      const float middle = (kNf4Code[k] + kNf4Code[k + 1]) / 2;
      const unsigned side = bits() % 3;
      x[i] = side == 0 ? middle : std::nextafter(middle, side == 1 ? 2.0f : -2.0f);
    }
  }
  return x;
}

TEST_CASE("quantize_nf4 gives the bits of the host's quantiser") {
  on_each_backend([](Context& ctx) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                     {1, 2},
                                     {1, 3},
                                     {1, 4},
                                     {1, 63},
                                     {1, 64},
                                     {1, 65},
                                     {5, 13},
                                     {7, 191},
                                     {64, 64},
                                     {3, 2731},
                                     {100, 130}})
      for (const DType t : {DType::f32, DType::bf16}) {
        CAPTURE(rows);
        CAPTURE(cols);
        CAPTURE(std::string(name_of(t)));
        const auto x = rounded(some_values(rows * cols, static_cast<unsigned>(rows + cols)), t);
        const Quantised want = by_host(x);
        CHECK(by_op(ctx, t, x, cols) == want);
        CHECK(by_op(ctx, t, x, cols, 1) == want);
        if (x.size() % 2) CHECK((want.codes.back() & 15) == 7);
      }
  });
}

// Values whose code depends on whether they are divided by the scale or multiplied by its reciprocal, which begin with
// the scale: the reference divides in the tail and multiplies elsewhere.
std::vector<float> either_way(size_t n) {
  std::mt19937 bits(3);
  for (float scale = 0.3f;; scale = std::nextafter(scale, 1.0f)) {
    std::vector<float> x = {scale};
    const float inverse = 1.0f / scale;
    for (size_t k = 0; k < 15; ++k) {
      const float middle = (kNf4Code[k] + kNf4Code[k + 1]) / 2;
      float v = middle * scale;
      for (int step = 0; step < 4; ++step) v = std::nextafter(v, -1.0f);
      for (int step = 0; step < 8 && x.size() < n; ++step, v = std::nextafter(v, 1.0f))
        if ((v / scale > middle) != (v * inverse > middle)) x.push_back(v);
    }
    if (x.size() < 4) continue;
    const size_t found = x.size();
    while (x.size() < n) x.push_back(x[1 + bits() % (found - 1)]);
    return x;
  }
}

TEST_CASE("quantize_nf4: whole blocks multiply by the reciprocal of the scale, the tail divides and is never 0") {
  on_each_backend([](Context& ctx) {
    for (const size_t n : {size_t{63}, size_t{64}, size_t{64 + 63}, size_t{128}, size_t{64 + 5}}) {
      CAPTURE(n);
      std::vector<float> x;
      while (x.size() < n) {
        const auto block = either_way(std::min<size_t>(64, n - x.size()));
        x.insert(x.end(), block.begin(), block.end());
      }
      const Quantised got = by_op(ctx, DType::f32, x, static_cast<int64_t>(n));
      CHECK(got == by_host(x));
      for (size_t i = 0; i < n; ++i) {
        const bool tail = i / 64 * 64 + 64 > n;
        const float scale = x[i / 64 * 64], v = tail ? x[i] / scale : x[i] * (1.0f / scale);
        int want = 0;
        for (size_t k = 0; k < 15; ++k) want += v > (kNf4Code[k] + kNf4Code[k + 1]) / 2;
        CHECK((i % 2 ? got.codes[i / 2] & 15 : got.codes[i / 2] >> 4) == want);
      }
      const Quantised zero = by_op(ctx, DType::f32, std::vector<float>(n), static_cast<int64_t>(n));
      CHECK(zero == by_host(std::vector<float>(n)));
      CHECK(zero.absmax.back() == bits_of({n % 64 ? 1e-38f : 0.0f})[0]);
    }
  });
}

TEST_CASE("quantize_nf4: NaN and infinities in whole blocks and in the tail") {
  on_each_backend([](Context& ctx) {
    constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
    for (const float odd : {kInf, -kInf, kNaN, std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(), 1e-38f, std::nextafter(1e-38f, 0.0f)})
      for (const bool alone : {false, true}) {
        CAPTURE(odd);
        std::vector<float> x = alone ? std::vector<float>(64 + 64 + 11) : random_values(64 + 64 + 11, 7);
        for (const size_t i : {size_t{3}, size_t{64 + 63}, size_t{128 + 10}}) x[i] = odd;
        const Quantised want = by_host(x), got = by_op(ctx, DType::f32, x, static_cast<int64_t>(x.size()));
        CHECK(got == want);
        if (std::isfinite(odd)) continue;
        CHECK((got.codes[1] & 15) == 0);                       // of element 3
        if (std::isinf(odd)) CHECK((got.codes[0] >> 4) == 7);  // its neighbours are zero
        if (std::isinf(odd)) CHECK(got.absmax == bits_of({kInf, kInf, kInf}));
      }
    std::vector<float> all(100, kNaN);
    CHECK(by_op(ctx, DType::f32, all, 100) == by_host(all));
  });
}

TEST_CASE("quantize_nf4: every code comes back as itself, and wrong arguments are named") {
  on_each_backend([](Context& ctx) {
    std::vector<float> x;
    for (int k = 0; k < 64; ++k) x.push_back(0.37f * kNf4Code[k % 16]);
    const Quantised q = by_op(ctx, DType::f32, x, 64);
    for (size_t k = 0; k < 64; ++k)
      CHECK((k % 2 ? q.codes[k / 2] & 15 : q.codes[k / 2] >> 4) == static_cast<int>(k % 16));
    CHECK(q.absmax == bits_of({0.37f}));

    const DeviceMatrix in(ctx, DType::f32, 3, 8, 9);
    const DeviceVector<uint8_t> codes(ctx, 16);
    const DeviceVector<float> absmax(ctx, 1);
    const auto words = [&](const QuantizeNf4Args& args) {
      try {
        quantize_nf4(ctx, args);
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    CHECK(words({.x = in, .codes = codes.get(), .absmax = absmax.get()}) ==
          "quantize_nf4: x must be dense, its row stride is not its columns, got 9");
    const ConstTensorView row = ConstTensorView(in).row_range(1, 1);
    CHECK(words({.x = row, .absmax = absmax.get()}) == "quantize_nf4: codes is null, expected data");
    CHECK(words({.x = row, .codes = codes.get()}) == "quantize_nf4: absmax is null, expected data");
    CHECK(words({.x = ConstTensorView(in).row_range(0, 0)}) == "");
  });
}

}  // namespace
