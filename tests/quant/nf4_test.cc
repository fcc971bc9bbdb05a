// SPDX-License-Identifier: Apache-2.0
#include "quant/nf4.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/nf4_codebook.h"
#include "quant/safetensors.h"
#include "quant/weight_store.h"
#include "quant_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

struct Case {
  const char* name;
  int64_t rows, cols;
  std::vector<float> values;
};

// The inputs of golden/make_nf4_golden.py.
std::vector<Case> cases() {
  auto zero_block = reference_values(200, 6, 0.5f);
  std::fill(zero_block.begin() + 64, zero_block.begin() + 128, 0.0f);
  auto zero_tail = reference_values(70, 7, 0.5f);
  std::fill(zero_tail.begin() + 64, zero_tail.end(), 0.0f);
  return {{"normal", 64, 64, reference_values(64 * 64, 1, 0.02f)},
          {"large", 200, 130, reference_values(200 * 130, 2, 0.04f)},
          {"one", 1, 1, {-0.3f}},
          {"odd", 5, 13, reference_values(65, 3, 1.0f)},
          {"wide", 3, 100, reference_values(300, 4, 3.0f)},
          {"tall", 100, 3, reference_values(300, 5, 3.0f)},
          {"constant", 2, 64, std::vector<float>(128, 0.25f)},
          {"zero", 2, 65, std::vector<float>(130, 0.0f)},
          {"zero_block", 4, 50, zero_block},
          {"zero_tail", 7, 10, zero_tail},
          {"tiny", 3, 50, reference_values(150, 8, 1e-39f)},
          {"huge", 3, 50, reference_values(150, 9, 3e37f)}};
}

std::string golden(const char* file) {
  return std::string(BANTAM_TESTS_DIR "/golden/") + file;
}

template <class T>
bool same_bytes(const std::vector<T>& have, std::span<const std::byte> want) {
  return have.size() * sizeof(T) == want.size() && std::memcmp(have.data(), want.data(), want.size()) == 0;
}

std::string code_bytes(const Nf4Matrix& m) {
  return {static_cast<const char*>(m.codes.view().data), m.codes.bytes()};
}

}  // namespace

TEST_CASE("the map of 8-bit scales is that of bitsandbytes") {
  const auto file = SafetensorsFile::open(golden("nf4_maps.safetensors"));
  const auto want = file->data(*file->find("dynamic_map"));
  REQUIRE(want.size() == sizeof dynamic_map());
  CHECK(std::memcmp(dynamic_map().data(), want.data(), want.size()) == 0);
  CHECK(std::is_sorted(dynamic_map().begin(), dynamic_map().end()));
}

TEST_CASE("every cell of the nested quantiser has the code of bitsandbytes") {
  const auto file = SafetensorsFile::open(golden("nf4_maps.safetensors"));
  const auto bytes = file->data(*file->find("first_cell"));
  std::vector<int32_t> first(256);
  REQUIRE(bytes.size() == 1024);
  std::memcpy(first.data(), bytes.data(), 1024);
  int wrong = 0;
  for (int cell = 0; cell < 65536; cell += 255) {
    std::vector<float> block = {1.0f};  // sets the scale
    for (int i = cell; i < std::min(cell + 255, 65536); ++i)
      block.push_back(static_cast<float>(i) / 65535.0f * 2.0f - 1.0f);
    std::vector<uint8_t> codes(block.size());
    float absmax = 0;
    nested_quantise(block, 0.0f, codes.data(), &absmax);
    CHECK(absmax == 1.0f);
    for (size_t i = 1; i < block.size(); ++i) {
      const auto want =
          std::upper_bound(first.begin(), first.end(), cell + static_cast<int>(i) - 1) - first.begin() - 1;
      // Codes that no cell uses share their first cell with the next one that is used; upper_bound gives the last.
      wrong += codes[i] != want;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("codes and scales are those of bitsandbytes, bit for bit") {
  const auto file = SafetensorsFile::open(golden("nf4_bnb.safetensors"));
  const auto part = [&](const std::string& name) {
    const auto* e = file->find(name);
    REQUIRE_MESSAGE(e != nullptr, name);
    return file->data(*e);
  };
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const std::string plain = str("model.layers.0.", c.name, "_proj.weight"),
                      nested = str("model.layers.1.", c.name, "_proj.weight");
    const Nf4Matrix m = nf4_quantise(c.values.data(), c.rows, c.cols, false);
    const auto codes = part(plain);
    CHECK(code_bytes(m) == std::string(reinterpret_cast<const char*>(codes.data()), codes.size()));
    CHECK(same_bytes(m.absmax, part(plain + ".absmax")));
    CHECK(same_bytes(std::vector<float>(kNf4Code, kNf4Code + 16), part(plain + ".quant_map")));

    // Nested: the same codes given the same offset; ours is the mean in double, theirs in single precision.
    const auto folder_offset = [&] {
      const auto blob = part(nested + ".quant_state.bitsandbytes__nf4");
      const std::string text(reinterpret_cast<const char*>(blob.data()), blob.size());
      const auto at = text.find("\"nested_offset\": ");
      REQUIRE(at != std::string::npos);
      return static_cast<float>(std::stod(text.substr(at + 17)));
    }();
    std::vector<uint8_t> q(m.absmax.size());
    std::vector<float> q_absmax((q.size() + 255) / 256);
    nested_quantise(m.absmax, folder_offset, q.data(), q_absmax.data());
    CHECK(same_bytes(q, part(nested + ".absmax")));
    CHECK(same_bytes(q_absmax, part(nested + ".nested_absmax")));
    CHECK(std::fabs(fixed_order_mean(m.absmax) - folder_offset) <= 1e-6f * std::fabs(folder_offset));
  }
}

TEST_CASE("a value between two codes goes to the nearer one, the middle to the lower") {
  for (int k = 0; k < 15; ++k) {
    const float mid = (kNf4Code[k] + kNf4Code[k + 1]) / 2;
    std::vector<float> x(64, 0.0f);
    x[0] = 1.0f;
    x[1] = mid;
    x[2] = std::nextafter(mid, 2.0f);
    x[3] = std::nextafter(mid, -2.0f);
    uint8_t codes[32];
    float absmax;
    nf4_quantise(x.data(), 64, codes, &absmax);
    CHECK((codes[0] & 15) == k);
    CHECK((codes[1] >> 4) == k + 1);
    CHECK((codes[1] & 15) == k);
  }
}

TEST_CASE("an all-zero matrix stays exactly zero, with and without nested scales") {
  for (const bool nested : {false, true})
    for (const int64_t n : {1, 63, 64, 65, 20000}) {
      const std::vector<float> x(static_cast<size_t>(n), 0.0f);
      const Nf4Matrix m = nf4_quantise(x.data(), 1, n, nested);
      std::vector<float> y(x.size(), 1.0f);
      decode_weight(m.view(), 0, n, y.data());
      for (const float v : y) REQUIRE(v == 0.0f);
    }
}

TEST_CASE("shapes of all sizes come back within half a step, and the tail has its own scale") {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 13}, {3, 100}, {100, 3}, {64, 64}, {7, 191}}) {
    CAPTURE(rows);
    CAPTURE(cols);
    auto x = reference_values(rows * cols, 11, 1.0f);
    const int64_t tail = rows * cols % 64;
    for (int64_t i = rows * cols - tail; i < rows * cols; ++i) x[static_cast<size_t>(i)] *= 1e-3f;
    const Nf4Matrix m = nf4_quantise(x.data(), rows, cols, false);
    std::vector<float> y(x.size());
    decode_weight(m.view(), 0, rows * cols, y.data());
    for (size_t i = 0; i < x.size(); ++i)
      REQUIRE(std::fabs(x[i] - y[i]) <= m.absmax[i / 64] * 0.1520f);  // half of the widest gap, between -1 and -0.696
    // Decoding from the middle is the same.
    float one = 0;
    decode_weight(m.view(), rows * cols - 1, 1, &one);
    CHECK(one == y.back());
    if (rows * cols % 2) CHECK((static_cast<uint8_t>(code_bytes(m).back()) & 15) == 7);
  }
}

TEST_CASE("slabs and threads do not change the result") {
  // Wide enough for many slabs, with rows that do not end at block boundaries.
  const int64_t rows = 2500, cols = 1003;
  std::map<std::string, MemoryTensor> tensors;
  tensors["w"] = {{rows, cols}, reference_values(rows * cols, 21, 0.1f)};
  const auto source = memory_source(tensors);
  REQUIRE(detail::slab_rows(rows, cols) < rows / 2);
  CHECK(detail::slab_rows(rows, cols) * cols % 64 == 0);
  const Nf4Matrix want = nf4_quantise(tensors["w"].values.data(), rows, cols, true);
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    const Nf4Matrix m = nf4_quantise(*source, 0, true, pool);
    CHECK(code_bytes(m) == code_bytes(want));
    CHECK(m.absmax_q == want.absmax_q);
    CHECK(m.nested_absmax == want.nested_absmax);
    CHECK(m.nested_offset == want.nested_offset);
    CHECK(m.absmax.empty());
  }
}

TEST_CASE("values that are not finite are named and counted") {
  auto x = reference_values(3000 * 700, 5, 1.0f);
  x[1500 * 700 + 12] = std::numeric_limits<float>::quiet_NaN();
  x[1500 * 700 + 13] = std::numeric_limits<float>::infinity();
  x[2999 * 700] = -std::numeric_limits<float>::infinity();
  std::map<std::string, MemoryTensor> tensors;
  tensors["model.layers.0.mlp.up_proj.weight"] = {{3000, 700}, x};
  const auto source = memory_source(std::move(tensors));
  ThreadPool pool(3);
  const std::string e = error_of([&] { nf4_quantise(*source, 0, true, pool); }, ErrorCode::numeric);
  CHECK(contains(e, "'model.layers.0.mlp.up_proj.weight': 3 values"));
  CHECK(contains(e, "first at index 1050012 (row 1500, column 12)"));
}

TEST_CASE("scales that overflow give some code, not a read outside the table") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float odd : {inf, -inf, nan, 3e38f, 1e-45f}) {
    const std::vector<float> values = {1.0f, odd, -2.0f};
    uint8_t codes[3];
    float absmax;
    for (const float offset : {0.0f, inf, nan, -3e38f}) nested_quantise(values, offset, codes, &absmax);
    nested_quantise(std::vector<float>{odd, 0.0f, -odd}, 0.0f, codes, &absmax);
  }
  const std::vector<float> tiny = {1e-45f, 0.0f};  // its reciprocal is infinite
  uint8_t codes[2];
  float absmax;
  nested_quantise(tiny, 0.0f, codes, &absmax);
  CHECK(absmax == 1e-45f);
  CHECK(codes[0] == 255);
}

TEST_CASE("the error report measures what quantising lost") {
  std::map<std::string, MemoryTensor> tensors;
  tensors["w"] = {{64, 192}, reference_values(64 * 192, 31, 0.02f)};
  const auto source = memory_source(tensors);
  ThreadPool pool(1);
  const Nf4Matrix plain = nf4_quantise(*source, 0, false, pool), nested = nf4_quantise(*source, 0, true, pool);
  const WeightError a = weight_error(*source, 0, plain.view()), b = weight_error(*source, 0, nested.view());
  std::vector<float> y(64 * 192);
  decode_weight(plain.view(), 0, 64 * 192, y.data());
  double sum = 0, own = 0, most = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = tensors["w"].values[i], d = x - y[i];
    sum += d * d;
    own += x * x;
    most = std::max(most, std::fabs(d));
  }
  CHECK(a.rms == doctest::Approx(std::sqrt(sum / 12288)));
  CHECK(a.source_rms == doctest::Approx(std::sqrt(own / 12288)));
  CHECK(a.max == most);
  CHECK(a.rms / a.source_rms > 0.05);
  CHECK(a.rms / a.source_rms < 0.12);
  CHECK(std::fabs(b.rms - a.rms) < 0.05 * a.rms);
  const WeightError exact =
      weight_error(*source, 0, WeightView(ConstTensorView(tensors["w"].values.data(), DType::f32, 64, 192)));
  CHECK(exact.max == 0.0);
}
