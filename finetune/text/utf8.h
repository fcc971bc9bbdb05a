// SPDX-License-Identifier: Apache-2.0
// The little of UTF-8 that text handling needs: where a text stops being valid, and single code points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace bantam {

/// Length in bytes of the sequence at the start of `s` (1..4), 0 when it is not valid UTF-8 (overlong forms, surrogates
/// and values over U+10FFFF are not). `s` must not be empty.
inline size_t utf8_sequence(std::string_view s, uint32_t* code = nullptr) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint32_t b0 = byte(0);
  size_t n = 1;
  uint32_t c = b0, least = 0;
  if (b0 >= 0x80) {
    if (b0 >= 0xC2 && b0 <= 0xDF) {
      n = 2, c = b0 & 0x1F, least = 0x80;
    } else if (b0 >= 0xE0 && b0 <= 0xEF) {
      n = 3, c = b0 & 0x0F, least = 0x800;
    } else if (b0 >= 0xF0 && b0 <= 0xF4) {
      n = 4, c = b0 & 0x07, least = 0x10000;
    } else {
      return 0;
    }
  }
  if (s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    c = (c << 6) | (byte(i) & 0x3F);
  }
  if (c < least || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
  if (code != nullptr) *code = c;
  return n;
}

/// Length of the sequence at the end of `s`, which is not empty; 0 when it is not valid.
inline size_t utf8_last(std::string_view s, uint32_t* code = nullptr) {
  size_t begin = s.size() - 1;
  while (begin > 0 && s.size() - begin < 4 && (static_cast<uint8_t>(s[begin]) & 0xC0) == 0x80) --begin;
  return utf8_sequence(s.substr(begin), code) == s.size() - begin ? s.size() - begin : 0;
}

/// Bytes of ASCII at the start of `s`.
inline size_t ascii_prefix(std::string_view s) {
  size_t i = 0;
  for (uint64_t eight = 0; i + 8 <= s.size(); i += 8) {
    std::memcpy(&eight, s.data() + i, 8);
    if ((eight & 0x8080808080808080u) != 0) break;
  }
  while (i < s.size() && static_cast<uint8_t>(s[i]) < 0x80) ++i;
  return i;
}

inline bool is_ascii(std::string_view s) {
  return ascii_prefix(s) == s.size();
}

/// Bytes of the longest valid prefix.
inline size_t utf8_valid_prefix(std::string_view s) {
  size_t i = ascii_prefix(s);
  while (i < s.size()) {
    if (static_cast<uint8_t>(s[i]) < 0x80) {
      i += ascii_prefix(s.substr(i));
      continue;
    }
    const size_t n = utf8_sequence(s.substr(i));
    if (n == 0) break;
    i += n;
  }
  return i;
}

inline bool utf8_valid(std::string_view s) {
  return utf8_valid_prefix(s) == s.size();
}

inline void utf8_append(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t b) { out.push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6)), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18)), put(0x80 | ((c >> 12) & 0x3F)), put(0x80 | ((c >> 6) & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

/// Fit for a message: bytes that are not UTF-8 and control characters become \xNN.
inline std::string printable(std::string_view s, size_t limit = 200) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < s.size();) {
    if (out.size() >= limit) return out + "...";
    const size_t n = utf8_sequence(s.substr(i));
    const auto b = static_cast<uint8_t>(s[i]);
    if (n == 0 || b < 0x20 || b == 0x7F) {
      out += "\\x";
      out.push_back(kHex[b >> 4]), out.push_back(kHex[b & 15]);
      ++i;
    } else {
      out.append(s.substr(i, n));
      i += n;
    }
  }
  return out;
}

}  // namespace bantam
