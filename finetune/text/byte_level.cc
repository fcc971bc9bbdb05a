// SPDX-License-Identifier: Apache-2.0
#include "byte_level.h"

#include <array>

#include "utf8.h"

namespace bantam {
namespace {

// Printable Latin-1 stands for itself; the other bytes take the characters from U+0100 on, in order.
struct Table {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, 512> byte{};

  Table() {
    byte.fill(-1);
    uint16_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool plain = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[static_cast<size_t>(b)] = plain ? static_cast<uint16_t>(b) : next++;
      byte[character[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
    }
  }
};

const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) utf8_append(out, table().character[static_cast<uint8_t>(c)]);
  return out;
}

void alphabet_edits(std::string_view bytes, std::string_view made, Edits& edits) {
  size_t at = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t n = utf8_sequence(made.substr(at));
    if (n != 1 || made[at] != bytes[i]) edits.replace(i, i + 1, n);
    at += n;
  }
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t n = utf8_sequence(text, &code);
    if (n == 0 || code >= table().byte.size() || table().byte[code] < 0) return std::nullopt;
    out.push_back(static_cast<char>(table().byte[code]));
    text.remove_prefix(n);
  }
  return out;
}

}  // namespace bantam
