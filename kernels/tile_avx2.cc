// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mfma: 6 x 16 f32 micro-tiles, twelve accumulators of sixteen registers.
#include "simd_avx2.h"
#include "tile_engine.h"
#include "tile_tiers.h"

namespace bantam {

constinit const TileEngine kTileAvx2 = Engine<Avx2Simd, Tile<Avx2Simd, 6, 2>, Tile<Avx2Simd, 6, 2>>::table("avx2");

}  // namespace bantam
