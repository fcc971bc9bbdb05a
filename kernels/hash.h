// SPDX-License-Identifier: Apache-2.0
// The two hashes of the project: one that scatters a number, one over bytes. Neither is for security.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bantam {

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The upper 53 bits of a scattered number as a uniform in [0, 1).
constexpr double uniform53(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

/// 64-bit FNV-1a. `start`: the hash of what came before, to go on from it.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t start = kFnvStart) {
  for (const char c : bytes) start = (start ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return start;
}
inline uint64_t fnv1a(const void* bytes, size_t n, uint64_t start = kFnvStart) {
  return fnv1a(std::string_view(static_cast<const char*>(bytes), n), start);
}

/// 16 lower-case hex digits.
inline std::string hex64(uint64_t v) {
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, v >>= 4) out[static_cast<size_t>(i)] = "0123456789abcdef"[v & 15];
  return out;
}

}  // namespace bantam
