// SPDX-License-Identifier: Apache-2.0
// The tile engines of the tiers that this machine runs.
#include "kernels/tile_checks.h"

using namespace bantam;
using namespace bantam::test;

namespace {
template <class F>
void for_each_tier(F f) {
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512bf16}) {
    if (isa > best_isa()) continue;
    CAPTURE(name_of(isa));
    CHECK(std::string(tile_engine(isa).name) == name_of(isa));
    f(isa, tile_engine(isa));
  }
}
}  // namespace

TEST_CASE("rows are decoded bit for bit") {
  for_each_tier([](Isa, const TileEngine& e) { check_decode(e); });
}

TEST_CASE("packed products equal the double reference and do not depend on the block") {
  for_each_tier(
      [](Isa isa, const TileEngine& e) { check_products(e, isa == Isa::avx512bf16, isa == Isa::scalar ? 60 : 200); });
}

TEST_CASE("the epilogue rounds each operation once") {
  for_each_tier([](Isa, const TileEngine& e) { check_finish(e); });
}

TEST_CASE("slices cover the reduction, are short, and depend on its length and the arithmetic only") {
  for_each_tier([](Isa, const TileEngine& e) {
    for (const Math math : {Math::f32, Math::bf16})
      for (int64_t k = 1; k < 5000; ++k) {
        const int64_t longest = math == Math::bf16 && e.pairs ? 1024
                                : e.nr >= 64                  ? 768
                                                              : 512,
                      s = reduction_slice(e, math, k);
        REQUIRE(s % 8 == 0);
        REQUIRE(s <= longest);
        // Even slices: the last is short by the rounding to 8 only.
        const int64_t n = (k + s - 1) / s;
        REQUIRE(n == (k + longest - 1) / longest);
        REQUIRE(k > (n - 1) * s);
      }
  });
}
