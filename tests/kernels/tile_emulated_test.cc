// SPDX-License-Identifier: Apache-2.0
// The AVX-512 tiers' own source on emulated intrinsics: their shuffles, roundings and pair layout are right on every
// machine, also where the tiers themselves cannot run.
#include "kernels/emulated_avx512.h"
#include "kernels/simd_avx512.h"
#include "kernels/tile_checks.h"
#include "kernels/tile_engine.h"

using namespace bantam;
using namespace bantam::test;

namespace {
using F32Tile = Tile<Avx512Simd, 6, 4>;
const TileEngine kF32 = Engine<Avx512Simd, F32Tile, F32Tile>::table("avx512");
const TileEngine kBf16 = Engine<Avx512Simd, F32Tile, Tile<Avx512Bf16Simd, 6, 4>>::table("avx512bf16");
}  // namespace

TEST_CASE("emulated: rows are decoded bit for bit") {
  check_decode(kF32);
}

TEST_CASE("emulated: f32 products") {
  check_products(kF32, false, 60);
}

TEST_CASE("emulated: bf16 products") {
  check_products(kBf16, true, 60);
}

TEST_CASE("emulated: epilogue") {
  check_finish(kF32);
}

TEST_CASE("emulated: halves round to nearest even, NaN stays NaN") {
  const uint32_t edges[] = {0x00000000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
                            0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff, 0x80000001, 0x00008000};
  for (size_t i = 0; i < 4096; ++i) {
    const uint32_t u = i < std::size(edges) ? edges[i] : static_cast<uint32_t>(rng()());
    float x[16], f;
    std::memcpy(&f, &u, sizeof f);
    for (float& v : x) v = f;
    uint16_t half[16];
    Avx512Simd::store_bf16(half, Avx512Simd::load(x));
    CHECK(half[i % 16] == to_bf16(f).bits);
  }
}
