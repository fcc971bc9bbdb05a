// SPDX-License-Identifier: Apache-2.0
// embedding, rope, gated_act and dropout on every backend: the same cases, the same tolerances.
#include <limits>

#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/error.h"
#include "kernels/gated_act.h"
#include "kernels/rope.h"
#include "tests/kernels/device_harness.h"
#include "tests/kernels/tolerance.h"
#include "tests/reference/dropout.h"
#include "tests/reference/gated_act.h"
#include "tests/reference/rope.h"

using namespace bantam;
using namespace bantam::test;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16};
constexpr GradMode kModes[] = {GradMode::write, GradMode::add};
constexpr Act kActs[] = {Act::silu, Act::gelu_tanh};

struct Case {
  int64_t rows, cols, pad, offset;  // pad: elements between rows; offset: of the first from an aligned address
  int64_t count() const { return rows * cols; }
};
// Rows of several blocks of 512 columns; with and without a tail of four; unaligned rows and unaligned starts.
constexpr Case kCases[] = {{1, 1, 0, 0},    {3, 64, 0, 0}, {63, 65, 0, 0},  {9, 8, 8, 4},
                           {3, 1027, 1, 0}, {4, 63, 1, 1}, {2, 1100, 0, 0}, {130, 3, 2, 0}};

DeviceMatrix matrix(Context& ctx, DType t, const Case& n, const std::vector<float>& values) {
  return {ctx, t, n.rows, n.cols, values, n.cols + n.pad, n.offset};
}
DeviceMatrix matrix(Context& ctx, DType t, const Case& n) {
  return {ctx, t, n.rows, n.cols, n.cols + n.pad, n.offset};
}
std::vector<float> rows_of(const std::vector<float>& v, int64_t cols, int64_t r0, int64_t n) {
  return {v.begin() + r0 * cols, v.begin() + (r0 + n) * cols};
}

// What is expected of each element, with an error of `units` roundings of `scale` before it is stored (tolerance.h).
struct Expected {
  DType type;
  std::vector<double> want, bound;
  void add(double value, double start, double units, double scale) {
    const double before = units * tolerance::kF32 * scale;
    want.push_back(start + value);
    bound.push_back(before + tolerance::stored(type, std::fabs(start + value) + before));
  }
};

// ---- embedding ----

std::vector<int32_t> some_ids(int64_t n, int64_t rows) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < n; ++t) ids.push_back(static_cast<int32_t>((t * 7 + rows - 1) % rows));
  return ids;
}
std::vector<float> gathered(const std::vector<float>& table, const std::vector<int32_t>& ids, int64_t cols) {
  std::vector<float> v;
  for (const int32_t id : ids) v.insert(v.end(), table.begin() + id * cols, table.begin() + (id + 1) * cols);
  return v;
}

TEST_CASE("embedding: f32 and bf16 tables") {
  on_each_backend([](Context& ctx) {
    for (const Case& n : kCases)
      for (const DType table_type : kTypes)
        for (const DType yt : kTypes) {
          CAPTURE(n.cols);
          CAPTURE(std::string(name_of(table_type)));
          CAPTURE(std::string(name_of(yt)));
          constexpr int64_t kRows = 11;
          const auto values = rounded(random_values(kRows * n.cols, 1), table_type);
          const DeviceMatrix table(ctx, table_type, kRows, n.cols, values, n.cols + n.pad, n.offset);
          const auto ids = some_ids(n.rows, kRows);
          const DeviceVector<int32_t> device_ids(ctx, ids);
          const DeviceMatrix y = matrix(ctx, yt, n);
          embedding(ctx, {.ids = device_ids.get(), .table = table, .math = Math::bf16, .y = y});
          CHECK(y.host() == rounded(gathered(values, ids, n.cols), yt));
        }
  });
}

TEST_CASE("embedding: nf4 tables, plain and nested scales; rows that begin within a byte and within a block") {
  on_each_backend([](Context& ctx) {
    for (const Case& n : kCases)
      for (const bool nested : {false, true})
        for (const Math math : {Math::f32, Math::bf16})
          for (const DType yt : kTypes) {
            CAPTURE(n.cols);
            CAPTURE(nested);
            CAPTURE(std::string(name_of(yt)));
            constexpr int64_t kRows = 23;  // more than 256 blocks of scales in the wide cases
            const Nf4Matrix table(kRows, n.cols, nested, 2);
            const DeviceNf4 device_table(ctx, table);
            const auto ids = some_ids(n.rows, kRows);
            const DeviceVector<int32_t> device_ids(ctx, ids);
            const DeviceMatrix y = matrix(ctx, yt, n);
            embedding(ctx, {.ids = device_ids.get(), .table = device_table, .math = math, .y = y});
            const auto want = rounded(gathered(table.values, ids, n.cols), math == Math::bf16 ? DType::bf16 : yt);
            CHECK(y.host() == rounded(want, yt));
          }
  });
}

TEST_CASE("embedding: an id outside the table is named where the host sees it, else its row alone is NaN") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t kRows = 11, kCols = 70;
    const auto values = random_values(kRows * kCols, 3);
    const DeviceMatrix dense(ctx, DType::f32, kRows, kCols, values);
    const Nf4Matrix packed(kRows, kCols, true, 2);
    const DeviceNf4 nf4(ctx, packed);
    for (const bool quantised : {false, true})
      for (const int32_t bad : {11, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
        CAPTURE(bad);
        const DeviceVector<int32_t> ids(ctx, {0, 10, bad, 5});
        const auto before = random_values(4 * kCols, 4);
        const DeviceMatrix y(ctx, DType::f32, 4, kCols, before);
        const EmbeddingArgs args{.ids = ids.get(), .table = quantised ? WeightView(nf4) : WeightView(dense), .y = y};
        if (ctx.backend().host_memory) {
          const std::string want =
              str("embedding: position 2: token id ", bad, ", but the table has 11 rows (expected 0 to 10)");
          CHECK_THROWS_WITH_AS(embedding(ctx, args), want.c_str(), Error);
          CHECK(y.host() == before);
          continue;
        }
        embedding(ctx, args);
        const auto got = y.host();
        const auto want = gathered(quantised ? packed.values : values, {0, 10, 0, 5}, kCols);
        for (size_t i = 0; i < got.size(); ++i) CHECK((i / kCols == 2 ? std::isnan(got[i]) : got[i] == want[i]));
      }
  });
}

// ---- rope ----

struct HeadCase {
  int64_t rows, heads, head_dim, pad, offset, table_pad;
};
// Half heads with and without a tail of four (6: in aligned rows), rows of two whole blocks, unaligned x with aligned
// tables and the reverse.
constexpr HeadCase kHeadCases[] = {{1, 1, 2, 0, 0, 0},   {3, 2, 6, 0, 0, 0},   {3, 2, 12, 0, 0, 2},
                                   {65, 9, 64, 0, 0, 0}, {5, 2, 130, 3, 1, 1}, {2, 64, 32, 8, 4, 4},
                                   {4, 3, 8, 4, 0, 1},   {63, 1, 16, 1, 0, 0}};

struct RopeCase {
  HeadCase n;
  int64_t cols = n.heads * n.head_dim, half = n.head_dim / 2;
  std::vector<float> x, cos, sin;
  RopeCase(const HeadCase& c, DType xt) : n(c), x(rounded(random_values(n.rows * cols, 10, 3.0f), xt)) {
    for (int64_t t = 0; t < n.rows; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t + 1) * std::pow(10.0, -static_cast<double>(i));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
  }
  Case shape() const { return {n.rows, cols, n.pad, n.offset}; }
  DeviceMatrix table(Context& ctx, const std::vector<float>& v) const {
    return {ctx, DType::f32, n.rows, half, v, half + n.table_pad};
  }
  Expected expected(DType type, bool inverse, const std::vector<float>* old) const {
    Expected e{type, {}, {}};
    for (int64_t t = 0; t < n.rows; ++t) {
      const auto c = rows_of(cos, half, t, 1), s = rows_of(sin, half, t, 1);
      for (int64_t head = 0; head < n.heads; ++head) {
        const auto one = rows_of(x, n.head_dim, t * n.heads + head, 1);
        const auto want =
            reference::rope<double>({one.begin(), one.end()}, {c.begin(), c.end()}, {s.begin(), s.end()}, inverse);
        for (size_t i = 0; i < one.size(); ++i) {
          const size_t h = static_cast<size_t>(half), pair = i % h;
          const double scale = std::fabs(one[i] * c[pair]) + std::fabs(one[(i + h) % one.size()] * s[pair]);
          e.add(want[i], old ? (*old)[e.want.size()] : 0, tolerance::kRope, scale);
        }
      }
    }
    return e;
  }
};

TEST_CASE("rope: both ways, types, modes, in place, again the same") {
  on_each_backend([](Context& ctx) {
    for (const HeadCase& n : kHeadCases)
      for (const DType xt : kTypes)
        for (const DType yt : kTypes)
          for (const bool inverse : {false, true})
            for (const GradMode mode : kModes) {
              CAPTURE(n.head_dim);
              CAPTURE(std::string(name_of(xt)));
              CAPTURE(std::string(name_of(yt)));
              CAPTURE(inverse);
              const RopeCase r(n, xt);
              const auto old = rounded(random_values(r.n.rows * r.cols, 11), yt);
              const DeviceMatrix x = matrix(ctx, xt, r.shape(), r.x), y = matrix(ctx, yt, r.shape(), old);
              const DeviceMatrix cos = r.table(ctx, r.cos), sin = r.table(ctx, r.sin);
              RopeArgs args{.x = x, .cos = cos, .sin = sin, .head_dim = n.head_dim, .inverse = inverse, .y = y};
              args.mode = mode;
              rope(ctx, args);
              const Expected e = r.expected(yt, inverse, mode == GradMode::add ? &old : nullptr);
              check_close(y.host(), e.want, e.bound);
              const DeviceMatrix again = matrix(ctx, yt, r.shape(), old);
              args.y = again;
              rope(ctx, args);
              CHECK(again.host() == y.host());
              if (xt == yt && mode == GradMode::write) {
                args.y = x;
                rope(ctx, args);
                CHECK(x.host() == y.host());
              }
            }
  });
}

TEST_CASE("rope: a row does not depend on the other rows") {
  on_each_backend([](Context& ctx) {
    const RopeCase r({7, 3, 10, 0, 0, 0}, DType::f32);
    const DeviceMatrix x = matrix(ctx, DType::f32, r.shape(), r.x), cos = r.table(ctx, r.cos),
                       sin = r.table(ctx, r.sin);
    const DeviceMatrix all = matrix(ctx, DType::bf16, r.shape()), some(ctx, DType::bf16, 2, r.cols);
    rope(ctx, {.x = x, .cos = cos, .sin = sin, .head_dim = 10, .y = all});
    const auto part = [](const ConstTensorView& v) { return v.row_range(4, 2); };
    rope(ctx, {.x = part(x), .cos = part(cos), .sin = part(sin), .head_dim = 10, .y = some});
    CHECK(some.host() == rows_of(all.host(), r.cols, 4, 2));
  });
}

// ---- gated_act ----

struct Gate {  // what the formulas of gated_act.h make of one element, and the roundings allowed
  double act, slope, units, slope_units, slope_terms;
  Gate(Act a, double x) : act(reference::activate(a, x)), slope(reference::activate_slope(a, x)) {
    const bool silu = a == Act::silu;
    const double z = silu ? x : reference::gelu_two_u(x);
    const double dz = silu ? 1 : 2 * reference::kGeluScale * (1 + 3 * reference::kGeluCubic * x * x);
    units = silu ? tolerance::kSilu : tolerance::gelu_units(z);
    slope_units = silu ? tolerance::kSiluSlope : tolerance::gelu_slope_units(z);
    slope_terms = reference::sigmoid(z) * (1 + std::fabs(x) * reference::sigmoid(-z) * dz);
  }
};

TEST_CASE("gated_act: types, in place, again the same") {
  on_each_backend([](Context& ctx) {
    for (const Case& n : kCases)
      for (const DType type : kTypes)
        for (const Act act : kActs) {
          CAPTURE(n.cols);
          CAPTURE(std::string(name_of(type)));
          const auto g = rounded(random_values(n.count(), 20, 6.0f), type);
          const auto u = rounded(random_values(n.count(), 21, 2.0f), type);
          const DeviceMatrix gate = matrix(ctx, type, n, g), up = matrix(ctx, type, n, u), y = matrix(ctx, type, n);
          gated_act(ctx, {.gate = gate, .up = up, .act = act, .y = y});
          Expected e{type, {}, {}};
          for (size_t i = 0; i < g.size(); ++i) {
            const Gate f(act, g[i]);
            e.add(f.act * u[i], 0, f.units, std::fabs(f.act * u[i]));
          }
          check_close(y.host(), e.want, e.bound);
          const DeviceMatrix again = matrix(ctx, type, n), in_up = matrix(ctx, type, n, u);
          gated_act(ctx, {.gate = gate, .up = up, .act = act, .y = again});
          gated_act(ctx, {.gate = gate, .up = in_up, .act = act, .y = in_up});
          gated_act(ctx, {.gate = gate, .up = up, .act = act, .y = gate});
          CHECK(again.host() == y.host());
          CHECK(in_up.host() == y.host());
          CHECK(gate.host() == y.host());
        }
  });
}

TEST_CASE("gated_act_backward: types, modes, either output alone, in place, again the same") {
  on_each_backend([](Context& ctx) {
    for (const Case& n : kCases)
      for (const DType type : kTypes)
        for (const DType dyt : kTypes)
          for (const DType dgt : kTypes)
            for (const DType dut : kTypes)
              for (const Act act : kActs) {
                CAPTURE(n.cols);
                CAPTURE(std::string(name_of(type)));
                CAPTURE(std::string(name_of(dyt)));
                CAPTURE(std::string(name_of(dgt)));
                CAPTURE(std::string(name_of(dut)));
                // Each output is added to in half of the cases, not both in the same.
                const GradMode dg_mode = kModes[n.rows % 2], du_mode = kModes[(n.rows + (dyt == DType::bf16)) % 2];
                const auto g = rounded(random_values(n.count(), 22, 6.0f), type);
                const auto u = rounded(random_values(n.count(), 23, 2.0f), type);
                const auto d = rounded(random_values(n.count(), 24, 2.0f), dyt);
                const auto old_dg = rounded(random_values(n.count(), 25), dgt);
                const auto old_du = rounded(random_values(n.count(), 26), dut);
                const DeviceMatrix gate = matrix(ctx, type, n, g), up = matrix(ctx, type, n, u);
                const DeviceMatrix dy = matrix(ctx, dyt, n, d);
                const DeviceMatrix dgate = matrix(ctx, dgt, n, old_dg), dup = matrix(ctx, dut, n, old_du);
                const GatedActBackwardArgs inputs{.gate = gate, .up = up, .dy = dy, .act = act};
                GatedActBackwardArgs args = inputs;
                args.dgate = dgate, args.dgate_mode = dg_mode;
                args.dup = dup, args.dup_mode = du_mode;
                gated_act_backward(ctx, args);
                Expected dg{dgt, {}, {}}, du{dut, {}, {}};
                for (size_t i = 0; i < g.size(); ++i) {
                  const Gate f(act, g[i]);
                  const double to_gate = static_cast<double>(d[i]) * u[i];
                  dg.add(to_gate * f.slope, dg_mode == GradMode::add ? old_dg[i] : 0, f.slope_units,
                         std::fabs(to_gate) * f.slope_terms);
                  du.add(d[i] * f.act, du_mode == GradMode::add ? old_du[i] : 0, f.units, std::fabs(d[i] * f.act));
                }
                check_close(dgate.host(), dg.want, dg.bound);
                check_close(dup.host(), du.want, du.bound);

                const DeviceMatrix dgate_alone = matrix(ctx, dgt, n, old_dg), dup_alone = matrix(ctx, dut, n, old_du);
                args = inputs;
                args.dgate = dgate_alone, args.dgate_mode = dg_mode;
                gated_act_backward(ctx, args);
                args = inputs;
                args.dup = dup_alone, args.dup_mode = du_mode;
                gated_act_backward(ctx, args);
                CHECK(dgate_alone.host() == dgate.host());
                CHECK(dup_alone.host() == dup.host());

                if (dgt != type || dut != type) continue;
                const DeviceMatrix want_dg = matrix(ctx, dgt, n), want_du = matrix(ctx, dut, n);
                args = inputs;
                args.dgate = want_dg, args.dup = want_du;
                gated_act_backward(ctx, args);
                args.dgate = gate, args.dup = up;
                gated_act_backward(ctx, args);
                CHECK(gate.host() == want_dg.host());
                CHECK(up.host() == want_du.host());
              }
  });
}

TEST_CASE("gated_act: large gates saturate, NaN stays NaN") {
  on_each_backend([](Context& ctx) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> g = {1e30f, -1e30f, 300, -300, 0, nan, 1}, u = {1, 1, 1, 1, 1, 1, nan}, ones(7, 1.0f);
    for (const Act act : kActs) {
      const DeviceMatrix gate(ctx, DType::f32, 1, 7, g), up(ctx, DType::f32, 1, 7, u), dy(ctx, DType::f32, 1, 7, ones);
      const DeviceMatrix y(ctx, DType::f32, 1, 7), dgate(ctx, DType::f32, 1, 7);
      gated_act(ctx, {.gate = gate, .up = up, .act = act, .y = y});
      gated_act_backward(ctx, {.gate = gate, .up = up, .dy = dy, .act = act, .dgate = dgate});
      const auto v = y.host(), slope = dgate.host();
      CHECK(rows_of(v, 1, 0, 5) == std::vector<float>{1e30f, 0, 300, 0, 0});
      CHECK(rows_of(slope, 1, 0, 5) == std::vector<float>{1, 0, 1, 0, 0.5f});
      for (const size_t i : {size_t{5}, size_t{6}}) {
        CHECK(std::isnan(v[i]));
        CHECK(std::isnan(slope[i]));
      }
    }
  });
}

TEST_CASE("gated_act: a row does not depend on the other rows") {
  on_each_backend([](Context& ctx) {
    constexpr Case kAll{7, 67, 0, 0};
    const DeviceMatrix gate = matrix(ctx, DType::bf16, kAll, random_values(kAll.count(), 27, 6.0f));
    const DeviceMatrix up = matrix(ctx, DType::bf16, kAll, random_values(kAll.count(), 28));
    const DeviceMatrix dy = matrix(ctx, DType::f32, kAll, random_values(kAll.count(), 29));
    const auto part = [](const ConstTensorView& v) { return v.row_range(4, 2); };
    for (const Act act : kActs) {
      const DeviceMatrix y = matrix(ctx, DType::bf16, kAll), y_part(ctx, DType::bf16, 2, kAll.cols);
      gated_act(ctx, {.gate = gate, .up = up, .act = act, .y = y});
      gated_act(ctx, {.gate = part(gate), .up = part(up), .act = act, .y = y_part});
      CHECK(y_part.host() == rows_of(y.host(), kAll.cols, 4, 2));
      const DeviceMatrix dx = matrix(ctx, DType::f32, kAll), dx_part(ctx, DType::f32, 2, kAll.cols);
      gated_act_backward(ctx, {.gate = gate, .up = up, .dy = dy, .act = act, .dgate = dx});
      gated_act_backward(ctx, {.gate = part(gate), .up = part(up), .dy = part(dy), .act = act, .dgate = dx_part});
      CHECK(dx_part.host() == rows_of(dx.host(), kAll.cols, 4, 2));
    }
  });
}

// ---- dropout ----

struct DropoutRows {
  std::vector<uint64_t> key;
  std::vector<int32_t> position;
  explicit DropoutRows(int64_t n) {
    for (int64_t t = 0; t < n; ++t) {
      key.push_back(dropout_row_key(42, 3, static_cast<uint64_t>(t / 7)));
      position.push_back(static_cast<int32_t>(t % 7) * 306783378);  // up to the largest
    }
  }
};

TEST_CASE("dropout: the reference's mask and the same numbers on every backend, bit by bit") {
  on_each_backend([](Context& ctx) {
    for (const Case& n : kCases)
      for (const DType xt : kTypes)
        for (const DType yt : kTypes)
          for (const GradMode mode : kModes)
            for (const float p : {0.0f, 0.3f, 0.95f}) {
              CAPTURE(n.cols);
              CAPTURE(std::string(name_of(xt)));
              CAPTURE(std::string(name_of(yt)));
              CAPTURE(p);
              const auto x = rounded(random_values(n.count(), 30, 2.0f), xt);
              const auto old = rounded(random_values(n.count(), 31), yt);
              const DropoutRows r(n.rows);
              const DeviceVector<uint64_t> key(ctx, r.key);
              const DeviceVector<int32_t> position(ctx, r.position);
              const DeviceMatrix in = matrix(ctx, xt, n, x), y = matrix(ctx, yt, n, old);
              DropoutArgs args{.x = in, .p = p, .row_key = key.get(), .position = position.get(), .layer = 65535};
              args.site = 5;
              args.y = y;
              args.mode = mode;
              dropout(ctx, args);
              std::vector<float> want;
              const float scale = 1.0f / (1.0f - p);
              for (int64_t i = 0; i < n.count(); ++i) {
                const auto at = static_cast<size_t>(i), row = static_cast<size_t>(i / n.cols);
                const bool keeps = reference::dropout_keeps(p, r.key[row], r.position[row], 65535, 5, i % n.cols);
                const float v = keeps ? x[at] * scale : 0.0f;
                want.push_back(mode == GradMode::add ? old[at] + v : v);
              }
              CHECK(y.host() == rounded(want, yt));
              const DeviceMatrix again = matrix(ctx, yt, n, old);
              args.y = again;
              dropout(ctx, args);
              CHECK(again.host() == y.host());
              if (xt == yt && mode == GradMode::write) {
                args.y = in;
                dropout(ctx, args);
                CHECK(in.host() == y.host());
              }
            }
  });
}

TEST_CASE("dropout: a row does not depend on the other rows") {
  on_each_backend([](Context& ctx) {
    constexpr Case kAll{7, 67, 0, 0};
    const DropoutRows r(kAll.rows);
    const DeviceVector<uint64_t> key(ctx, r.key);
    const DeviceVector<int32_t> position(ctx, r.position);
    const DeviceMatrix x = matrix(ctx, DType::f32, kAll, random_values(kAll.count(), 32));
    const DeviceMatrix y = matrix(ctx, DType::bf16, kAll), some(ctx, DType::bf16, 2, kAll.cols);
    dropout(ctx, {.x = x, .p = 0.5f, .row_key = key.get(), .position = position.get(), .y = y});
    dropout(ctx, {.x = ConstTensorView(x).row_range(4, 2),
                  .p = 0.5f,
                  .row_key = key.get() + 4,
                  .position = position.get() + 4,
                  .y = some});
    CHECK(some.host() == rows_of(y.host(), kAll.cols, 4, 2));
  });
}

// ---- alignment ----

TEST_CASE("any one operand may be unaligned: the same numbers as with all of them aligned") {
  on_each_backend([](Context& ctx) {
    constexpr int64_t kRows = 3, kCols = 64;
    const DropoutRows r(kRows);
    const DeviceVector<uint64_t> key(ctx, r.key);
    const DeviceVector<int32_t> position(ctx, r.position), ids(ctx, {2, 0, 1});
    std::vector<std::vector<float>> aligned;
    for (unsigned odd = 0; odd <= 5; ++odd) {  // which operand is not aligned, 0: none
      CAPTURE(odd);
      const auto operand = [&](unsigned k, int64_t cols) -> DeviceMatrix {
        return {ctx, DType::f32, kRows, cols, random_values(kRows * cols, 40 + k), cols, k == odd};
      };
      const DeviceMatrix a = operand(1, kCols), b = operand(2, kCols), c = operand(3, kCols), d = operand(4, kCols),
                         e = operand(5, kCols), cos = operand(2, 8), sin = operand(3, 8);
      std::vector<std::vector<float>> got;
      embedding(ctx, {.ids = ids.get(), .table = a, .y = b});
      got.push_back(b.host());
      rope(ctx, {.x = a, .cos = cos, .sin = sin, .head_dim = 16, .y = d, .mode = GradMode::add});
      got.push_back(d.host());
      gated_act(ctx, {.gate = a, .up = b, .y = c});
      got.push_back(c.host());
      gated_act_backward(ctx, {.gate = a, .up = b, .dy = c, .dgate = d, .dup = e});
      got.push_back(d.host());
      got.push_back(e.host());
      dropout(ctx, {.x = a, .p = 0.5f, .row_key = key.get(), .position = position.get(), .y = b});
      got.push_back(b.host());
      if (odd == 0) aligned = got;
      CHECK(got == aligned);
    }
  });
}

}  // namespace
