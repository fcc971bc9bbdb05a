// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma: 6 x 64 f32 micro-tiles, 24 accumulators of 32
// registers.
#include "simd_avx512.h"
#include "tile_engine.h"
#include "tile_tiers.h"

namespace bantam {

constinit const TileEngine kTileAvx512 =
    Engine<Avx512Simd, Tile<Avx512Simd, 6, 4>, Tile<Avx512Simd, 6, 4>>::table("avx512");

}  // namespace bantam
