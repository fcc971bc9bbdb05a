// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/nf4_codebook.h"
#include "reference/cross_entropy_reference.h"

using namespace bantam;

namespace {

// Losses are f32 numbers of size ~log V: 1e-6 relative, plus the rounding of the logits, chains of C products of size
// up to 0.5 (2^-24 * sqrt(C) * a few). Gradients of a row, in the 2-norm: the rounding of V probabilities and of sums
// over V in slices. Where the tier multiplies in bf16, each operand is rounded by 2^-8.
constexpr double kLoss = 1e-6, kGradient = 4e-6, kBf16Loss = 1.0 / 200, kBf16Gradient = 1.0 / 50;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

struct Problem {
  int64_t rows, cols, vocab;
  Tensor hidden, head;
  std::vector<int32_t> labels;
  std::vector<float> weights;

  Problem(int64_t t, int64_t c, int64_t v, DType dtype = DType::f32, DType head_dtype = DType::f32)
      : rows(t), cols(c), vocab(v), hidden(dtype, t, c), head(head_dtype, v, c) {
    std::mt19937 bits(11);
    const auto uniform = [&] { return static_cast<float>(bits()) * 0x1p-31f - 1.0f; };
    with_float_type(dtype, [&]<class T>() {
      for (int64_t i = 0; i < t * c; ++i) hidden.data<T>()[i] = from_f32<T>(uniform());
    });
    with_float_type(head_dtype, [&]<class T>() {
      for (int64_t i = 0; i < v * c; ++i) head.data<T>()[i] = from_f32<T>(0.5f * uniform());
    });
    for (int64_t i = 0; i < t; ++i) {
      labels.push_back(bits() % 3 == 0 ? kIgnoreLabel : static_cast<int32_t>(bits() % static_cast<uint32_t>(v)));
      weights.push_back(0.25f + 0.5f * (uniform() + 1.0f));
    }
    // Both ends of the vocabulary, and two runs that need no gathering.
    for (int64_t i = 0; i < std::min<int64_t>(t, 2); ++i)
      labels[static_cast<size_t>(i)] = i ? static_cast<int32_t>(v - 1) : 0;
  }
};

struct Result {
  std::vector<float> loss, lse, dhidden;
  bool operator==(const Result&) const = default;
};

// `chunk` rows at a time; 0: all. Outputs start as NaN.
Result run(Context& ctx, const Problem& p, int64_t chunk, Math math = Math::f32, const WeightView* head = nullptr,
           bool gradient = true, bool weighted = true) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto rows = static_cast<size_t>(p.rows), cols = static_cast<size_t>(p.cols);
  Result r{std::vector<float>(rows, nan), std::vector<float>(rows, nan), std::vector<float>(rows * cols, nan)};
  const size_t bytes = cross_entropy_scratch(chunk ? chunk : p.rows, p.cols, p.vocab);
  const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  std::memset(scratch.get(), 0xff, bytes);
  CrossEntropyArgs args;
  args.hidden = p.hidden;
  args.labels = p.labels.data();
  args.weights = weighted ? p.weights.data() : nullptr;
  args.head = head ? *head : WeightView(static_cast<ConstTensorView>(p.head));
  args.math = math;
  args.loss = r.loss.data();
  args.lse = r.lse.data();
  if (gradient) args.dhidden = {r.dhidden.data(), DType::f32, p.rows, p.cols};
  args.scratch = scratch.get();
  args.scratch_bytes = bytes;
  chunked_cross_entropy(ctx, args);
  return r;
}

std::vector<double> values(const ConstTensorView& v) {
  std::vector<double> out;
  with_float_type(v.dtype, [&]<class T>() {
    for (int64_t r = 0; r < v.rows; ++r)
      for (int64_t c = 0; c < v.cols; ++c) out.push_back(to_f32(v.row<T>(r)[c]));
  });
  return out;
}

void check_against_oracle(const Problem& p, const Result& got, const std::vector<double>& head, bool half = false) {
  const auto hidden = values(p.hidden);
  const auto want = reference::cross_entropy(hidden, p.labels, head, p.cols);
  const auto gradient = reference::cross_entropy_backward(hidden, p.labels, p.weights, head, p.cols, want);
  double worst_loss = 0, worst_gradient = 0;
  for (int64_t t = 0; t < p.rows; ++t) {
    const auto i = static_cast<size_t>(t);
    const double scale = std::max(1.0, std::log(static_cast<double>(p.vocab)));
    worst_loss = std::max(
        {worst_loss, std::fabs(got.loss[i] - want.loss[i]) / scale, std::fabs(got.lse[i] - want.lse[i]) / scale});
    CHECK(!std::isnan(got.loss[i] + got.lse[i]));
    double error = 0, norm = 0;
    for (int64_t c = 0; c < p.cols; ++c) {
      const auto j = static_cast<size_t>(t * p.cols + c);
      error += (got.dhidden[j] - gradient[j]) * (got.dhidden[j] - gradient[j]);
      norm += gradient[j] * gradient[j];
      if (p.labels[i] == kIgnoreLabel) CHECK(got.dhidden[j] == 0);
    }
    CHECK(!std::isnan(error));
    // A vocabulary of one has no gradient: the bound is absolute there.
    worst_gradient = std::max(worst_gradient, std::sqrt(error) / std::max(std::sqrt(norm), 0.05));
    if (p.labels[i] == kIgnoreLabel) CHECK((got.loss[i] == 0 && got.lse[i] == 0));
  }
  CHECK(worst_loss <= (half ? kBf16Loss : kLoss));
  CHECK(worst_gradient <= (half ? kBf16Gradient : kGradient));
}

}  // namespace

TEST_CASE("cross entropy oracle: the gradient agrees with the complex step") {
  using C = std::complex<double>;
  const Problem p(6, 5, 9);
  const auto hidden = values(p.hidden), head = values(p.head);
  const auto g = reference::cross_entropy_backward(hidden, p.labels, p.weights, head, p.cols,
                                                   reference::cross_entropy(hidden, p.labels, head, p.cols));
  constexpr double h = 1e-30;
  for (size_t i = 0; i < hidden.size(); ++i) {
    std::vector<C> x(hidden.begin(), hidden.end());
    x[i] += C(0, h);
    const auto out = reference::cross_entropy(x, p.labels, head, p.cols);
    double slope = 0;
    for (size_t t = 0; t < p.labels.size(); ++t) slope += p.weights[t] * out.loss[t].imag() / h;
    CHECK(std::fabs(slope - g[i]) <= 1e-12);
  }
}

TEST_CASE("cross entropy agrees with the oracle and does not depend on chunk or threads") {
  Context one({.num_threads = 1}), two({.num_threads = 2}), three({.num_threads = 3}), seven({.num_threads = 7});
  for (const int64_t vocab : {1, 31, 127, 257, 1000, 50257}) {
    CAPTURE(vocab);
    const Problem p(vocab == 50257 ? 9 : 40, vocab == 50257 ? 24 : 48, vocab);
    const Result want = run(one, p, 0);
    check_against_oracle(p, want, values(p.head));
    CHECK(run(one, p, 1) == want);
    CHECK(run(two, p, 7) == want);
    CHECK(run(three, p, 0) == want);
    CHECK(run(seven, p, 3) == want);
  }
}

TEST_CASE("cross entropy: hidden rows and heads of every format") {
  Context ctx({.num_threads = 2});
  for (const Math math : {Math::f32, Math::bf16})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const DType head_dtype : {DType::f32, DType::bf16}) {
        const Problem p(20, 33, 130, dtype, head_dtype);
        const Result got = run(ctx, p, 0, math);
        // Math::bf16 may round the head, and on a tier with bf16 products everything.
        check_against_oracle(p, got, values(p.head), math == Math::bf16);
        CHECK(run(ctx, p, 3, math) == got);
      }
}

TEST_CASE("cross entropy: an nf4 head") {
  Context ctx({.num_threads = 2});
  Problem p(30, 40, 257);
  const auto elements = static_cast<size_t>(p.vocab * p.cols);
  std::vector<uint8_t> codes((elements + 1) / 2);
  std::vector<float> absmax((elements + 63) / 64);
  std::mt19937 bits(5);
  for (uint8_t& c : codes) c = static_cast<uint8_t>(bits());
  for (float& a : absmax) a = 0.25f + static_cast<float>(bits() % 1000) * 0.0005f;
  WeightView head;
  head.format = WeightFormat::nf4;
  head.rows = p.vocab;
  head.cols = head.stride = p.cols;
  head.data = codes.data();
  head.absmax = absmax.data();
  std::vector<double> decoded(elements);
  for (size_t i = 0; i < elements; ++i)
    decoded[i] = kNf4Code[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4] * absmax[i / 64];
  const Result got = run(ctx, p, 0, Math::f32, &head);
  check_against_oracle(p, got, decoded);
  CHECK(run(ctx, p, 7, Math::f32, &head) == got);
}

TEST_CASE("cross entropy on every tier of this machine") {
  const Problem p(20, 50, 300);
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16}) {
    if (isa > best_isa()) continue;
    Context ctx({.num_threads = 1, .isa = isa});
    check_against_oracle(p, run(ctx, p, 0), values(p.head));
  }
}

TEST_CASE("cross entropy: a row's result depends on that row alone") {
  Context ctx({.num_threads = 2});
  Problem p(12, 16, 50);
  for (int32_t& label : p.labels) label = 7;
  const Result all = run(ctx, p, 0);
  for (size_t t = 0; t < p.labels.size(); ++t) p.labels[t] = t % 2 ? kIgnoreLabel : 7;
  const Result half = run(ctx, p, 0);
  for (size_t t = 0; t < p.labels.size(); ++t) {
    CHECK(half.loss[t] == (t % 2 ? 0.0f : all.loss[t]));
    for (size_t c = 0; c < 16; ++c) CHECK(half.dhidden[t * 16 + c] == (t % 2 ? 0.0f : all.dhidden[t * 16 + c]));
  }
}

TEST_CASE("cross entropy: loss only, no lse, no weights, nothing trained, no rows") {
  Context ctx({.num_threads = 2});
  Problem p(25, 16, 100);
  const Result whole = run(ctx, p, 4);
  const Result loss_only = run(ctx, p, 4, Math::f32, nullptr, false);
  CHECK(loss_only.loss == whole.loss);
  CHECK(loss_only.lse == whole.lse);
  CHECK(std::isnan(loss_only.dhidden[0]));

  const Result unit = run(ctx, p, 4, Math::f32, nullptr, true, false);
  CHECK(unit.loss == whole.loss);
  for (size_t i = 0; i < unit.dhidden.size(); ++i) CHECK(unit.dhidden[i] * p.weights[i / 16] == whole.dhidden[i]);

  for (int32_t& label : p.labels) label = kIgnoreLabel;
  const Result none = run(ctx, p, 4);
  for (const float x : none.loss) CHECK(x == 0);
  for (const float x : none.lse) CHECK(x == 0);
  for (const float x : none.dhidden) CHECK(x == 0);

  CHECK_NOTHROW(run(ctx, Problem(0, 16, 100), 1));
}

TEST_CASE("cross entropy: a confident row and large logits keep their precision") {
  Context ctx({.num_threads = 1});
  Problem p(3, 4, 1000);
  for (int64_t i = 0; i < 3 * 4; ++i) p.hidden.data<float>()[i] = i % 4 == 0 ? 1.0f : 0.0f;
  // Logits 300, 290 for one other, -300 for the rest: loss log1p(exp(-10)), where 300 in f32 is good to 1.5e-5 only.
  for (int64_t v = 0; v < 1000; ++v) p.head.data<float>()[v * 4] = v == 500 ? 300.0f : v == 17 ? 290.0f : -300.0f;
  p.labels = {500, 17, 3};
  const Result got = run(ctx, p, 0);
  CHECK(std::fabs(got.loss[0] - std::log1p(std::exp(-10.0))) <= 0x1p-23);
  CHECK(std::fabs(got.loss[1] - (10.0 + std::log1p(std::exp(-10.0)))) <= 1e-6);
  CHECK(std::fabs(got.loss[2] - (600.0 + std::log1p(std::exp(-10.0)))) <= 6e-5);

  p.hidden.data<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  const Result bad = run(ctx, p, 0);
  CHECK(bad.loss[0] == got.loss[0]);
  CHECK(std::isnan(bad.loss[1]));
}

TEST_CASE("cross entropy: a label outside the vocabulary is a data error with row and value") {
  Context ctx({.num_threads = 1});
  for (const int32_t label : {-1, -101, 10, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    Problem p(5, 4, 10);
    p.labels[3] = label;
    try {
      run(ctx, p, 0);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::data);
      CHECK(std::string(e.what()).find(str("row 3 of 5 is ", label, ", expected 0 .. 9")) != std::string::npos);
      CHECK(!e.hint().empty());
    }
  }
}

TEST_CASE("cross entropy: wrong arguments are refused with words") {
  Context ctx({.num_threads = 1});
  const Problem p(5, 4, 10);
  std::vector<float> loss(5), half(20);
  const size_t bytes = cross_entropy_scratch(1, 4, 10);
  const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, bytes));
  CrossEntropyArgs good;
  good.hidden = p.hidden;
  good.labels = p.labels.data();
  good.head = static_cast<ConstTensorView>(p.head);
  good.loss = loss.data();
  good.scratch = scratch.get();
  good.scratch_bytes = bytes;
  CHECK_NOTHROW(chunked_cross_entropy(ctx, good));
  const auto message = [&](auto change) {
    CrossEntropyArgs args = good;
    change(args);
    try {
      chunked_cross_entropy(ctx, args);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  using A = CrossEntropyArgs&;
  const auto contains = [](const std::string& s, const char* part) { return s.find(part) != std::string::npos; };
  CHECK(contains(message([](A a) { a.labels = nullptr; }), "labels is null"));
  CHECK(contains(message([](A a) { a.loss = nullptr; }), "loss is null"));
  CHECK(contains(message([](A a) { a.scratch = nullptr; }), "scratch is null"));
  CHECK(contains(message([](A a) { a.scratch = static_cast<char*>(a.scratch) + 4; }), "64-byte aligned"));
  CHECK(contains(message([](A a) { a.scratch_bytes -= 1; }), "expected at least"));
  CHECK(contains(message([](A a) { a.head.cols = 5; }), "head must have the columns of hidden, got 5"));
  CHECK(contains(message([&](A a) { a.dhidden = {half.data(), DType::bf16, 5, 4}; }), "dhidden has dtype bf16"));
  CHECK(contains(message([&](A a) { a.dhidden = {half.data(), DType::f32, 4, 4}; }), "expected [5, 4]"));
}

TEST_CASE("cross entropy scratch: rows follow from the budget, in 64 bits") {
  const size_t budget = size_t{128} << 20;
  const int64_t rows = cross_entropy_chunk_rows(budget, 2048, 576, 248000);
  CHECK(rows >= 100);  // a row of logits is 0.95 MiB
  CHECK(cross_entropy_scratch(rows, 576, 248000) <= budget);
  CHECK(cross_entropy_scratch(rows + 1, 576, 248000) > budget);
  CHECK(cross_entropy_chunk_rows(budget, 50, 576, 248000) == 50);
  CHECK(cross_entropy_chunk_rows(0, 50, 576, 248000) == 1);
  CHECK(cross_entropy_chunk_rows(budget, 0, 576, 1000) == 1);
  CHECK(cross_entropy_scratch(65536, 576, 50257) > size_t{65536} * 50257 * 4);
  CHECK(cross_entropy_scratch(int64_t{1} << 40, int64_t{1} << 20, int64_t{1} << 31) == SIZE_MAX);
  for (const int64_t vocab : {1, 127, 50257})
    for (int64_t n = 1; n < 100; n += 7)
      CHECK(cross_entropy_chunk_rows(cross_entropy_scratch(n, 64, vocab), 1000, 64, vocab) == n);
}
