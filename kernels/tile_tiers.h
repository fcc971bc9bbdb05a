// SPDX-License-Identifier: Apache-2.0
// The tables of the tiers; tile_engine() chooses. Not a public header.
#pragma once
#include "product_tile.h"

namespace bantam {

extern const TileEngine kTileScalar;
#if defined(__x86_64__)
extern const TileEngine kTileAvx2, kTileAvx512, kTileAvx512Bf16;
#endif

}  // namespace bantam
