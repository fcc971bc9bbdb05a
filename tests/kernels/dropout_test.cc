// SPDX-License-Identifier: Apache-2.0
#include "kernels/dropout.h"

#include <set>

#include "kernels/philox.h"
#include "op_test.h"
#include "reference/dropout.h"

using namespace bantam;
using namespace bantam::test;

namespace {
struct Rows {
  std::vector<uint64_t> key;
  std::vector<int32_t> position;
  explicit Rows(int64_t n) {
    for (int64_t t = 0; t < n; ++t) {
      key.push_back(dropout_row_key(42, 3, static_cast<uint64_t>(t / 7)));
      position.push_back(static_cast<int32_t>(t % 7) * 1000);
    }
  }
};
}  // namespace

TEST_CASE("philox4x32 gives the published known answers") {
  using A = PhiloxWords;
  CHECK(philox4x32({{0, 0, 0, 0}}, 0, 0) == A{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  CHECK(philox4x32({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u) == A{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  CHECK(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0) ==
        A{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST_CASE("dropout equals the reference: mask and values, dtypes, modes, widths") {
  for (const Shape s : shapes())
    for (const DType tx : kFloats)
      for (const DType ty : kFloats)
        for (const GradMode mode : {GradMode::write, GradMode::add}) {
          const float p = 0.3f;
          const Matrix x(tx, s.rows, s.cols, Random(1), 2), before(ty, s.rows, s.cols, Random(2));
          const Rows rows(s.rows);
          Matrix y = before;
          dropout(context(), {.x = x,
                              .p = p,
                              .row_key = rows.key.data(),
                              .position = rows.position.data(),
                              .layer = 29,
                              .site = 5,
                              .y = y,
                              .mode = mode});
          Worst worst;
          for (int64_t t = 0; t < s.rows; ++t)
            for (int64_t i = 0; i < s.cols; ++i) {
              const bool keeps = reference::dropout_keeps(p, rows.key[t], rows.position[t], 29, 5, i);
              const double start = mode == GradMode::add ? before.at(t, i) : 0;
              const double want = keeps ? x.at(t, i) / (1 - double{p}) : 0;
              if (!keeps && y.at(t, i) != start) worst.add(INFINITY, 0, 1);
              worst.add(ty, y.at(t, i), want + start, tolerance::kDropout, std::abs(want));
            }
          CAPTURE(s.rows);
          CAPTURE(s.cols);
          CHECK(worst.ratio() <= 1);
          CHECK(y.gaps_intact());
        }
}

TEST_CASE("dropout row contract: the mask does not depend on the rows around, nor on threads") {
  const Matrix x(DType::f32, 1000, 65, Random(3));
  const Rows rows(1000);
  check_row_contract(Matrix(DType::bf16, 1000, 65), [&](Context& ctx, Matrix& y, int64_t r0, int64_t n) {
    dropout(ctx, {.x = x.part(r0, n),
                  .p = 0.5f,
                  .row_key = rows.key.data() + r0,
                  .position = rows.position.data() + r0,
                  .y = y.part(r0, n)});
  });
}

TEST_CASE("dropout: a row's mask is its key, position, layer and site; each of them matters") {
  Matrix x(DType::f32, 4, 256);
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t i = 0; i < 256; ++i) x.put(t, i, 1);
  const std::vector<uint64_t> key = {7, 7, uint64_t{7} << 32, 7};
  const std::vector<int32_t> position = {1, 2, 1, 1};
  const auto mask = [&](int32_t layer, int32_t site) {
    Matrix y(DType::f32, 4, 256);
    dropout(
        context(),
        {.x = x, .p = 0.5f, .row_key = key.data(), .position = position.data(), .layer = layer, .site = site, .y = y});
    return y;
  };
  const Matrix a = mask(1, 2), b = mask(2, 1);
  CHECK(a.row(0) == a.row(3));
  const std::set<std::vector<double>> distinct = {a.row(0), a.row(1), a.row(2), b.row(0), mask(0, 2).row(0)};
  CHECK(distinct.size() == 5);
}

TEST_CASE("dropout: share of kept channels; p = 0 is the identity") {
  const int64_t rows = 200, cols = 1000;
  Matrix x(DType::f32, rows, cols, Random(4)), y(DType::f32, rows, cols), same(DType::f32, rows, cols);
  const Rows r(rows);
  dropout(context(), {.x = x, .p = 0.1f, .row_key = r.key.data(), .position = r.position.data(), .y = y});
  int64_t kept = 0;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < cols; ++i) kept += y.at(t, i) != 0;
  // 200,000 draws: the standard deviation of the count is 134; five of them.
  CHECK(std::abs(static_cast<double>(kept) - 180000) < 5 * 134.2);
  dropout(context(), {.x = x, .p = 0, .row_key = r.key.data(), .position = r.position.data(), .y = same});
  CHECK(same == x);
}

TEST_CASE("dropout_row_key: every part matters, and the value is fixed") {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 5; ++seed)
    for (uint64_t epoch = 0; epoch < 5; ++epoch)
      for (uint64_t sample = 0; sample < 40; ++sample) keys.insert(dropout_row_key(seed, epoch, sample));
  CHECK(keys.size() == 1000);
  CHECK(dropout_row_key(0, 0, 0) != 0);
  CHECK(dropout_row_key(1, 2, 3) == 0x6ae515c1c0ac7e37u);  // a change would break resumed runs
}

TEST_CASE("dropout: wrong arguments") {
  Matrix x(DType::f32, 1, 8), y(DType::f32, 1, 8);
  const uint64_t key = 1;
  const int32_t position = 0;
  const auto with = [&](float p, int32_t layer, const uint64_t* k) {
    return error_of(ErrorCode::internal, [&] {
      dropout(context(), {.x = x, .p = p, .row_key = k, .position = &position, .layer = layer, .y = y});
    });
  };
  CHECK(with(1, 0, &key) == "dropout: p must be in [0, 1), got 1");
  CHECK(with(std::nanf(""), 0, &key) == "dropout: p must be in [0, 1), got nan");
  CHECK(with(0.5f, 65536, &key) == "dropout: layer must be in [0, 65536), got 65536");
  CHECK(with(0.5f, 0, nullptr) == "dropout: row_key is null, expected data");
}
