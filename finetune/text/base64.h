// SPDX-License-Identifier: Apache-2.0
// Base64, as vocabularies use it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bantam {

/// None for text that is not base64 (padded, the standard alphabet, no white space).
inline std::optional<std::string> base64_decode(std::string_view text) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  size_t digits = text.size();
  while (digits > 0 && text.size() - digits < 2 && text[digits - 1] == '=') --digits;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0, have = 0;
  for (const char c : text.substr(0, digits)) {
    const size_t v = kDigits.find(c);
    if (v == std::string_view::npos) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(v)) & 0xFFFFFF;
    have += 6;
    if (have >= 8) {
      have -= 8;
      out.push_back(static_cast<char>(bits >> have));
    }
  }
  return out;
}

}  // namespace bantam
