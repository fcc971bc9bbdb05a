// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include "kernels/nf4_codebook.h"
#include "op_test.h"

using namespace bantam;
using namespace bantam::test;

namespace {
std::vector<int32_t> some_ids(int64_t n, int64_t rows) {
  Random random(1);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < n; ++t) ids.push_back(static_cast<int32_t>(random.bits() % static_cast<uint64_t>(rows)));
  ids[0] = 0;
  if (n > 1) ids[1] = static_cast<int32_t>(rows - 1);
  return ids;
}

// An nf4 table of random codes and scales, plain or nested, and its elements by the definition in weight_view.h.
struct Nf4Table {
  std::vector<uint8_t> codes, absmax_q;
  std::vector<float> absmax, nested_absmax, nested_code;
  WeightView view;
  Nf4Table(int64_t rows, int64_t cols, bool nested) {
    Random random(2);
    const int64_t n = rows * cols, blocks = (n + 63) / 64;
    for (int64_t i = 0; i < (n + 1) / 2; ++i) codes.push_back(static_cast<uint8_t>(random.bits()));
    view.format = WeightFormat::nf4;
    view.rows = rows;
    view.cols = view.stride = cols;
    view.data = codes.data();
    if (nested) {
      for (int64_t b = 0; b < blocks; ++b) absmax_q.push_back(static_cast<uint8_t>(random.bits()));
      nested_absmax = random.vector((blocks + 255) / 256);
      nested_code = random.vector(256);
      view.absmax_q = absmax_q.data();
      view.nested_absmax = nested_absmax.data();
      view.nested_code = nested_code.data();
      view.nested_offset = 0.25f;
    } else {
      absmax = random.vector(blocks, 3);
      view.absmax = absmax.data();
    }
  }
  float at(int64_t row, int64_t col) const {
    const int64_t i = row * view.cols + col;
    const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
    return kNf4Code[code] * view.block_absmax(i / 64);
  }
};
}  // namespace

TEST_CASE("embedding from f32 and bf16 tables gives the rows, converted") {
  for (const Shape s : shapes())
    for (const DType ttable : kFloats)
      for (const DType ty : kFloats) {
        const Matrix table(ttable, 11, s.cols, Random(3), 2);
        const std::vector<int32_t> ids = some_ids(s.rows, 11);
        Matrix y(ty, s.rows, s.cols), want(ty, s.rows, s.cols);
        embedding(context(), {.ids = ids.data(), .table = ConstTensorView(table), .math = Math::bf16, .y = y});
        for (int64_t t = 0; t < s.rows; ++t)
          for (int64_t i = 0; i < s.cols; ++i) want.put(t, i, table.at(ids[t], i));
        CHECK(y == want);
      }
}

TEST_CASE("embedding from an nf4 table gives the decoded rows: plain and nested scales, any tier, any width") {
  for (const Isa isa : {Isa::scalar, best_isa()}) {
    Context ctx({.num_threads = 2, .isa = isa});
    for (const int64_t cols : {int64_t{1}, int64_t{7}, int64_t{64}, int64_t{65}, int64_t{576}, int64_t{2500}})
      for (const bool nested : {false, true})
        for (const Math math : {Math::f32, Math::bf16})
          for (const DType ty : kFloats) {
            const Nf4Table table(9, cols, nested);
            const std::vector<int32_t> ids = some_ids(20, 9);
            Matrix y(ty, 20, cols), want(ty, 20, cols);
            embedding(ctx, {.ids = ids.data(), .table = table.view, .math = math, .y = y});
            for (int64_t t = 0; t < 20; ++t)
              for (int64_t i = 0; i < cols; ++i) {
                const float v = table.at(ids[t], i);
                want.put(t, i, math == Math::bf16 ? to_f32(to_bf16(v)) : v);
              }
            CAPTURE(cols);
            CHECK(y == want);
          }
  }
}

TEST_CASE("embedding row contract") {
  const Nf4Table table(50, 63, true);
  const std::vector<int32_t> ids = some_ids(1000, 50);
  check_row_contract(Matrix(DType::bf16, 1000, 63), [&](Context& ctx, Matrix& y, int64_t r0, int64_t n) {
    embedding(ctx, {.ids = ids.data() + r0, .table = table.view, .y = y.part(r0, n)});
  });
}

TEST_CASE("embedding: an id outside the table names position, id and table") {
  const Matrix table(DType::f32, 11, 8);
  Matrix y(DType::f32, 3, 8), wide(DType::f32, 3, 9);
  for (const int32_t bad : {11, -1, -100}) {
    const std::vector<int32_t> ids = {0, 10, bad};
    CHECK(error_of(ErrorCode::data, [&] {
            embedding(context(), {.ids = ids.data(), .table = ConstTensorView(table), .y = y});
          }) == str("embedding: position 2: token id ", bad, ", but the table has 11 rows (expected 0 to 10)"));
  }
  const std::vector<int32_t> ids = {0, 1, 2};
  CHECK(error_of(ErrorCode::internal, [&] {
          embedding(context(), {.ids = ids.data(), .table = ConstTensorView(table), .y = wide});
        }) == "embedding: y has shape [3, 9], expected [3, 8]");
  Nf4Table broken(11, 8, true);
  broken.view.nested_code = nullptr;
  CHECK(error_of(ErrorCode::internal, [&] {
          embedding(context(), {.ids = ids.data(), .table = broken.view, .y = y});
        }) == "embedding: nested_code of table is null, expected data");
}
