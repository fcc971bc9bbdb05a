// SPDX-License-Identifier: Apache-2.0
#include "row_view.h"

#include <algorithm>
#include <cstdio>

#include "../finetune/data/grouped.h"
#include "../finetune/text/utf8.h"
#include "../kernels/error.h"
#include "values.h"

namespace bantam {
namespace {

constexpr const char *kTrained = "\033[32m", *kContext = "\033[2m", *kPlain = "\033[0m";

// Texts of ids[begin, end) in the place where they stand: a joining rule at the start of a text is not one of a run's.
std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t begin, size_t end) {
  const std::string before = tokenizer.decode(ids.first(begin), false), all = tokenizer.decode(ids.first(end), false);
  if (all.size() >= before.size() && all.compare(0, before.size(), before) == 0) return all.substr(before.size());
  return tokenizer.decode(ids.subspan(begin, end - begin), false);
}

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

std::string row_text(const SampleView& s, const Tokenizer& tokenizer, bool color) {
  std::string out;
  const auto weight = [&](size_t i) { return s.trained[i] == 0 ? 0.0f : s.weights.empty() ? 1.0f : s.weights[i]; };
  for (size_t begin = 0, end = 0; begin < s.ids.size(); begin = end) {
    while (end < s.ids.size() && weight(end) == weight(begin)) ++end;
    const float w = weight(begin);
    std::string head = w == 0 ? "context" : w == 1 ? "trained" : "trained x" + format_number(static_cast<double>(w));
    const std::string text = text_of(tokenizer, s.ids, begin, end);
    for (size_t at = 0; at < text.size();) {
      const size_t line = std::min(text.find('\n', at), text.size());
      out += "  " + head + " | " + (color ? (w == 0 ? kContext : kTrained) : "") +
             visible(std::string_view(text).substr(at, line - at)) + (color ? kPlain : "") + "\n";
      head.assign(head.size(), ' ');
      at = line + 1;
    }
    if (text.empty()) out += "  " + head + " |\n";
  }
  return out;
}

std::string token_table(std::span<const int32_t> ids, std::span<const uint8_t> trained, const Tokenizer& tokenizer,
                        bool color) {
  std::string out;
  const size_t digits = std::to_string(ids.size()).size();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string place = std::to_string(i), id = std::to_string(ids[i]);
    const bool on = i < trained.size() && trained[i] != 0;
    out += std::string(digits - place.size(), ' ') + place + "  " +
           std::string(id.size() < 7 ? 7 - id.size() : 0, ' ') + id;
    if (!trained.empty()) out += on ? "  +" : "   ";
    out += "  ";
    if (color && !trained.empty()) out += on ? kTrained : kContext;
    const std::string piece = visible(tokenizer.piece(ids[i])), bytes = tokenizer.decode(ids.subspan(i, 1), false);
    out += piece;
    if (bytes != piece) out += std::string(piece.size() < 16 ? 16 - piece.size() : 1, ' ') + show(bytes);
    if (color && !trained.empty()) out += kPlain;
    out += "\n";
  }
  return out;
}

}  // namespace bantam
