// SPDX-License-Identifier: Apache-2.0
// Dropout of one element, scalar, with Philox4x32-10 written from the paper's description (64-bit products, no
// constants shared).
#pragma once
#include <cstdint>

namespace bantam::reference {

struct Philox {
  uint32_t v[4];
};
inline Philox philox(Philox c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c.v[0], p1 = 0xCD9E8D57ull * c.v[2];
    const uint32_t hi0 = static_cast<uint32_t>(p0 / 0x100000000ull), lo0 = static_cast<uint32_t>(p0 % 0x100000000ull);
    const uint32_t hi1 = static_cast<uint32_t>(p1 / 0x100000000ull), lo1 = static_cast<uint32_t>(p1 % 0x100000000ull);
    c = {{hi1 ^ c.v[1] ^ k0, lo1, hi0 ^ c.v[3] ^ k1, lo0}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

inline bool dropout_keeps(double p, uint64_t row_key, int32_t position, int32_t layer, int32_t site, int64_t channel) {
  const Philox c = {{static_cast<uint32_t>(position), static_cast<uint32_t>(channel / 4),
                     static_cast<uint32_t>(layer) * 65536u + static_cast<uint32_t>(site), 0}};
  const Philox bits = philox(c, static_cast<uint32_t>(row_key), static_cast<uint32_t>(row_key >> 32));
  return (bits.v[channel % 4] / 256) / 16777216.0 >= p;
}

}  // namespace bantam::reference
