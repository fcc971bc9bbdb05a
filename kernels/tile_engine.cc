// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tile_tiers.h"

namespace bantam {

const TileEngine& tile_engine(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return kTileScalar;
#if defined(__x86_64__)
    case Isa::avx2:
      return kTileAvx2;
    case Isa::avx512:
      return kTileAvx512;
    case Isa::avx512bf16:
      return kTileAvx512Bf16;
#else
    default:
      break;
#endif
  }
  throw Error(ErrorCode::device, str("product: CPU tier ", name_of(isa), " is not in this build"), "use tier scalar");
}

int64_t reduction_slice(const TileEngine& e, Math math, int64_t k) {
  // Every slice but the first reads and writes the f32 sums once more; a longer one leaves room for fewer columns in
  // L2.
  const int64_t longest = e.pairs && math == Math::bf16 ? 1024 : e.nr >= 64 ? 768 : 512;
  if (k <= 0) return 8;
  const int64_t slices = (k + longest - 1) / longest;
  return ((k + slices - 1) / slices + 7) / 8 * 8;
}

}  // namespace bantam
