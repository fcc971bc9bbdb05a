// SPDX-License-Identifier: Apache-2.0
// tile_avx512.cc with -mavx512bf16 as well: Math::bf16 multiplies pairs of bf16, at twice the rate of f32.
#include "simd_avx512.h"
#include "tile_engine.h"
#include "tile_tiers.h"

namespace bantam {

constinit const TileEngine kTileAvx512Bf16 =
    Engine<Avx512Simd, Tile<Avx512Simd, 6, 4>, Tile<Avx512Bf16Simd, 6, 4>>::table("avx512bf16");

}  // namespace bantam
