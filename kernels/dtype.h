// SPDX-License-Identifier: Apache-2.0
// Element types and the only conversions between them (round to nearest even).
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace bantam {

enum class DType : uint8_t { f32, bf16, f16, i32, u8 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}
constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

/// A bfloat16 as stored. Arithmetic is always done in f32.
struct bf16 {
  uint16_t bits = 0;
};
static_assert(sizeof(bf16) == 2);

constexpr float to_f32(bf16 v) {
  return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16);
}
constexpr float to_f32(float v) {
  return v;
}

/// Round to nearest even; NaN stays NaN (quiet).
constexpr bf16 to_bf16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

/// IEEE half to float, exact.
constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 1023u;
  if (exp == 31) return std::bit_cast<float>(sign | 0x7f800000u | (man << 13));
  if (exp != 0) return std::bit_cast<float>(sign | ((exp + 112u) << 23) | (man << 13));
  const float v = static_cast<float>(man) * (1.0f / 16777216.0f);  // subnormal: man * 2^-24
  return sign ? -v : v;
}

template <class T>
constexpr T from_f32(float v);
template <>
constexpr float from_f32<float>(float v) {
  return v;
}
template <>
constexpr bf16 from_f32<bf16>(float v) {
  return to_bf16(v);
}

template <class T>
inline constexpr DType dtype_of = DType::u8;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;

/// Calls f with a value of the element type: `with_float_type(t, [&]<class T>() { ... })`, T = float or bf16.
template <class F>
decltype(auto) with_float_type(DType t, F&& f) {
  if (t == DType::bf16) return f.template operator()<bf16>();
  return f.template operator()<float>();
}

}  // namespace bantam
