// SPDX-License-Identifier: Apache-2.0
// The tier of every machine, and the reference that the others are tested against.
#include "tile_engine.h"
#include "tile_tiers.h"

namespace bantam {

constinit const TileEngine kTileScalar =
    Engine<PlainSimd, Tile<PlainSimd, 4, 2>, Tile<PlainSimd, 4, 2>>::table("scalar");

}  // namespace bantam
