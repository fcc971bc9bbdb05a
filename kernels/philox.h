// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based random function (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
#pragma once
#include <cstdint>

#ifndef BANTAM_HOST_DEVICE  // cu_portable.cuh, which kernel files include first, has it for device code
#define BANTAM_HOST_DEVICE
#endif

namespace bantam {

inline constexpr uint32_t kPhiloxM0 = 0xd2511f53, kPhiloxM1 = 0xcd9e8d57;  // multipliers
inline constexpr uint32_t kPhiloxW0 = 0x9e3779b9, kPhiloxW1 = 0xbb67ae85;  // key increments
inline constexpr int kPhiloxRounds = 10;

/// 128 random bits, or a 128-bit counter.
struct PhiloxWords {
  uint32_t word[4];
  friend bool operator==(const PhiloxWords&, const PhiloxWords&) = default;
};

/// 128 random bits for a 128-bit counter under a 64-bit key.
BANTAM_HOST_DEVICE constexpr PhiloxWords philox4x32(PhiloxWords c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxM0} * c.word[0], b = uint64_t{kPhiloxM1} * c.word[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += kPhiloxW0;
    key1 += kPhiloxW1;
  }
  return c;
}

/// What dropout draws for channels 4*group .. 4*group+3 of one row: a function of these arguments alone.
BANTAM_HOST_DEVICE constexpr PhiloxWords dropout_bits(uint64_t row_key, int32_t position, int32_t layer, int32_t site,
                                                      uint32_t group) {
  const uint32_t where = static_cast<uint32_t>(layer) << 16 | static_cast<uint32_t>(site);
  return philox4x32({{static_cast<uint32_t>(position), group, where, 0}}, static_cast<uint32_t>(row_key),
                    static_cast<uint32_t>(row_key >> 32));
}
/// 24 random bits as a number in [0, 1); a channel is kept when it is >= p.
BANTAM_HOST_DEVICE constexpr float dropout_uniform(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace bantam
