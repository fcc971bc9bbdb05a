// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "../finetune/text/edit_distance.h"

namespace bantam {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};
constexpr std::array<Unit, 9> kUnits = {{{"TiB", int64_t{1} << 40},
                                         {"GiB", int64_t{1} << 30},
                                         {"MiB", int64_t{1} << 20},
                                         {"KiB", int64_t{1} << 10},
                                         {"TB", 1'000'000'000'000},
                                         {"GB", 1'000'000'000},
                                         {"MB", 1'000'000},
                                         {"KB", 1'000},
                                         {"B", 1}}};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_but_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string folded(std::string_view word) {
  std::string out;
  for (char c : word) out += c == '-' ? '_' : lower(c);
  return out;
}

std::string escaped(char c) {
  constexpr char kHex[] = "0123456789abcdef";
  const auto u = static_cast<unsigned char>(c);
  return {'\\', 'x', kHex[u >> 4], kHex[u & 15]};
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view word : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (text == word) return true;
  }
  for (std::string_view word : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> parse_size(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) ++digits;
  const std::string_view count = text.substr(0, digits);
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  int64_t factor = 1;
  if (!unit.empty()) {
    const auto found =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return same_but_case(u.name, unit); });
    if (found == kUnits.end()) return std::nullopt;
    factor = found->factor;
  }
  if (const auto whole = parse_integer(count)) {
    if (*whole > std::numeric_limits<int64_t>::max() / factor) return std::nullopt;
    return *whole * factor;
  }
  const auto part = parse_number(count);
  if (!part || factor == 1) return std::nullopt;
  const double bytes = *part * static_cast<double>(factor);
  if (!(bytes < 9e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::optional<double> parse_rate(std::string_view text) {
  size_t end = text.size();
  // "FLOPS", "FLOP/s" or nothing after the letter of the power.
  for (const std::string_view tail : {"FLOPS", "FLOP/s", "flops", "flop/s"})
    if (text.ends_with(tail)) end = text.size() - tail.size();
  while (end > 0 && text[end - 1] == ' ') --end;
  double factor = 1;
  if (end > 0) {
    static constexpr std::string_view kPowers = "KMGTP";
    const size_t power = kPowers.find(text[end - 1]);
    if (power != std::string_view::npos) {
      for (size_t i = 0; i <= power; ++i) factor *= 1000;
      --end;
    }
  }
  while (end > 0 && text[end - 1] == ' ') --end;
  const auto value = parse_number(text.substr(0, end));
  if (!value || *value <= 0 || *value * factor > 1e21) return std::nullopt;
  return *value * factor;
}

std::string format_number(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  // 2e-04 is right but nobody writes it.
  if (const size_t e = text.find('e'); e != std::string::npos && e + 2 < text.size() && text[e + 2] == '0') {
    text.erase(e + 2, 1);
  }
  return text;
}

std::string format_size(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (unit.factor > 1 && bytes >= unit.factor && bytes % unit.factor == 0) {
      return std::to_string(bytes / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(bytes);
}

std::string quote_yaml(std::string_view text) {
  const auto safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '_' ||
           c == '.' || c == '-';
  };
  // Words that YAML or a key reads as something else than text are quoted, although this reader would keep them.
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), safe) && text[0] != '-' && text != "..." &&
                     text != "null" && text != "Null" && text != "NULL" && !parse_bool(text) && !parse_number(text);
  if (plain) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += escaped(c);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string show(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "\"";
  size_t end = std::min(text.size(), kLongest);
  // Not in the middle of a UTF-8 sequence.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  for (char c : text.substr(0, end)) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (u < 0x20 || u == 0x7f) {
      out += escaped(c);
    } else {
      out += c;
    }
  }
  return out + (end < text.size() ? "...\"" : "\"");
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // no key is longer, and the distance is quadratic
  if (word.size() > kLongest) return {};
  const std::string from = folded(word);
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(from, folded(candidate));
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  const size_t allowed = from.size() <= 3 ? 1 : from.size() <= 6 ? 2 : from.size() / 3;
  return best_distance <= allowed ? best : std::string{};
}

}  // namespace bantam
