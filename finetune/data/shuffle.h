// SPDX-License-Identifier: Apache-2.0
// Random order that is the same with every standard library (std::shuffle and the distributions are not).
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "../../kernels/hash.h"

namespace bantam {

/// SplitMix64 (Steele, Lea, Flood 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    const uint64_t out = mix64(state_);
    state_ += 0x9E3779B97F4A7C15u;
    return out;
  }
  /// Uniform in [0, n), n > 0: values above the last whole multiple of n are drawn again.
  uint64_t below(uint64_t n) {
    const uint64_t reject = (0 - n) % n;  // 2^64 mod n
    for (;;) {
      const uint64_t x = next();
      if (x >= reject) return x % n;
    }
  }

 private:
  uint64_t state_;
};

/// Fisher-Yates.
template <class T>
void shuffle(std::vector<T>& v, SplitMix64& random) {
  for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[random.below(i)]);
}

}  // namespace bantam
