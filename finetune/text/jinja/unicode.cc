// SPDX-License-Identifier: Apache-2.0
#include "unicode.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>

#include "../unicode.h"
#include "../utf8.h"
#include "unicode_case.h"

namespace bantam {
namespace {

constexpr uint32_t kNoCode = 0x110000;  // plus the byte: what is not UTF-8

// Where the code point that ends before `end` begins.
size_t code_before(std::string_view s, size_t end) {
  for (size_t n = 2; n <= 4 && n <= end; ++n) {
    if (static_cast<uint8_t>(s[end - 1]) < 0x80) break;
    if (utf8_sequence(s.substr(end - n, n)) == n) return end - n;
  }
  return end - 1;
}

// Calls f(code, bytes) for every code point.
template <class F>
void each_code(std::string_view s, F f) {
  for (size_t i = 0, n = 0; i < s.size(); i += n) {
    const uint32_t code = text_code(s.substr(i), n);
    f(code, s.substr(i, n));
  }
}

bool in_set(std::string_view chars, std::string_view one) {
  bool found = false;
  each_code(chars, [&](uint32_t, std::string_view bytes) { found = found || bytes == one; });
  return found;
}

// A capital sigma at `at` is final: a cased letter before it and none after, what is case-ignorable left out.
bool final_sigma(std::string_view s, size_t at, size_t bytes) {
  size_t n = 0;
  bool before = false;
  for (size_t i = at; i > 0;) {
    i = code_before(s, i);
    const uint32_t code = text_code(s.substr(i), n);
    if (is_case_ignorable(code)) continue;
    before = is_cased(code);
    break;
  }
  if (!before) return false;
  for (size_t i = at + bytes; i < s.size(); i += n) {
    const uint32_t code = text_code(s.substr(i), n);
    if (!is_case_ignorable(code)) return !is_cased(code);
  }
  return true;
}

enum class Case { lower, upper, title, capitalize };

std::string with_case(std::string_view s, Case what) {
  std::string out;
  out.reserve(s.size());
  bool after_cased = false, first = true;
  size_t at = 0;
  each_code(s, [&](uint32_t code, std::string_view bytes) {
    if (code >= kNoCode) {
      out += bytes;
      after_cased = false;
    } else if (what == Case::upper) {
      append_upper(out, code);
    } else if ((what == Case::title && !after_cased) || (what == Case::capitalize && first)) {
      append_title(out, code);
      after_cased = is_cased(code);
    } else {
      if (code == 0x3A3 && final_sigma(s, at, bytes.size())) {
        utf8_append(out, 0x3C2);
      } else {
        append_lower(out, code);
      }
      after_cased = what == Case::title && is_cased(code);
    }
    first = false;
    at += bytes.size();
  });
  return out;
}

}  // namespace

uint32_t text_code(std::string_view s, size_t& bytes) {
  const auto first = static_cast<uint8_t>(s[0]);
  bytes = 1;
  if (first < 0x80) return first;
  uint32_t code = 0;
  const size_t n = utf8_sequence(s, &code);
  if (n == 0) return kNoCode + first;
  bytes = n;
  return code;
}

int64_t text_length(std::string_view s) {
  if (is_ascii(s)) return static_cast<int64_t>(s.size());
  int64_t n = 0;
  each_code(s, [&](uint32_t, std::string_view) { ++n; });
  return n;
}

std::string text_slice(std::string_view s, int64_t first, int64_t step, int64_t count) {
  std::string out;
  if (count <= 0) return out;
  if (is_ascii(s)) {
    if (step == 1) return std::string(s.substr(static_cast<size_t>(first), static_cast<size_t>(count)));
    for (int64_t k = 0; k < count; ++k) out.push_back(s[static_cast<size_t>(first + k * step)]);
    return out;
  }
  if (step == 1) {
    int64_t i = 0;
    each_code(s, [&](uint32_t, std::string_view bytes) {
      if (i >= first && i < first + count) out += bytes;
      ++i;
    });
    return out;
  }
  std::vector<std::string_view> codes;
  each_code(s, [&](uint32_t, std::string_view bytes) { codes.push_back(bytes); });
  for (int64_t k = 0; k < count; ++k) out += codes[static_cast<size_t>(first + k * step)];
  return out;
}

bool is_python_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_python_printable(uint32_t code) {
  if (code < 0x7F) return code >= 0x20;
  if (code >= kNoCode) return false;
  switch (utf8proc_category(static_cast<int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string_view text_strip(std::string_view s, std::optional<std::string_view> chars, bool left, bool right) {
  const auto drop = [&](std::string_view one) {
    size_t n = 0;
    return chars ? in_set(*chars, one) : is_python_space(text_code(one, n));
  };
  while (left && !s.empty()) {
    size_t n = 0;
    text_code(s, n);
    if (!drop(s.substr(0, n))) break;
    s.remove_prefix(n);
  }
  while (right && !s.empty()) {
    const size_t begin = code_before(s, s.size());
    if (!drop(s.substr(begin))) break;
    s.remove_suffix(s.size() - begin);
  }
  return s;
}

std::string text_lower(std::string_view s) {
  return with_case(s, Case::lower);
}
std::string text_upper(std::string_view s) {
  return with_case(s, Case::upper);
}
std::string text_title(std::string_view s) {
  return with_case(s, Case::title);
}
std::string text_capitalize(std::string_view s) {
  return with_case(s, Case::capitalize);
}

size_t text_find(std::string_view s, std::string_view what, size_t from) {
  if (from > s.size()) return std::string_view::npos;
  if (what.empty()) return from;
  // glibc's memmem is linear, std::string_view::find is not.
  const void* at = memmem(s.data() + from, s.size() - from, what.data(), what.size());
  return at == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(at) - s.data());
}

std::vector<std::string_view> text_split(std::string_view s, std::optional<std::string_view> separator, int64_t most,
                                         bool from_right) {
  std::vector<std::string_view> out;
  if (separator && !from_right) {
    size_t begin = 0;
    for (; most != 0; --most) {
      const size_t end = text_find(s, *separator, begin);
      if (end == std::string_view::npos) break;
      out.push_back(s.substr(begin, end - begin));
      begin = end + separator->size();
    }
    out.push_back(s.substr(begin));
    return out;
  }
  if (separator) {
    for (; most != 0; --most) {
      const size_t at = s.rfind(*separator);
      if (at == std::string_view::npos) break;
      out.push_back(s.substr(at + separator->size()));
      s = s.substr(0, at);
    }
    out.push_back(s);
    std::reverse(out.begin(), out.end());
    return out;
  }
  const auto is_space = [](std::string_view one) {
    size_t n = 0;
    return is_python_space(text_code(one, n));
  };
  s = text_strip(s, std::nullopt, !from_right, from_right);
  for (; !s.empty(); --most) {
    if (most == 0) {
      out.push_back(s);
      break;
    }
    size_t n = 0;
    if (from_right) {
      size_t begin = s.size();
      for (size_t b = 0; begin > 0; begin = b) {
        b = code_before(s, begin);
        if (is_space(s.substr(b, begin - b))) break;
      }
      out.push_back(s.substr(begin));
      s = text_strip(s.substr(0, begin), std::nullopt, false, true);
    } else {
      size_t end = 0;
      for (; end < s.size(); end += n) {
        if (is_python_space(text_code(s.substr(end), n))) break;
      }
      out.push_back(s.substr(0, end));
      s = text_strip(s.substr(end), std::nullopt, true, false);
    }
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> text_splitlines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t begin = 0, n = 0;
  for (size_t i = 0; i < s.size(); i += n) {
    const uint32_t c = text_code(s.substr(i), n);
    const bool ends = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i + 1 < s.size() && s[i + 1] == '\n') n = 2;
    out.push_back(s.substr(begin, (keep_ends ? i + n : i) - begin));
    begin = i + n;
  }
  if (begin < s.size()) out.push_back(s.substr(begin));
  return out;
}

int64_t text_count(std::string_view s, std::string_view what) {
  if (what.empty()) return text_length(s) + 1;
  int64_t n = 0;
  for (size_t at = 0; (at = text_find(s, what, at)) != std::string_view::npos; at += what.size()) ++n;
  return n;
}

std::string text_replace(std::string_view s, std::string_view what, std::string_view by, int64_t most) {
  std::string out;
  if (what.empty()) {  // before every code point and at the end
    each_code(s, [&](uint32_t, std::string_view bytes) {
      if (most != 0) out += by;
      if (most != 0) --most;
      out += bytes;
    });
    if (most != 0) out += by;
    return out;
  }
  size_t begin = 0;
  for (; most != 0; --most) {
    const size_t at = text_find(s, what, begin);
    if (at == std::string_view::npos) break;
    out.append(s.substr(begin, at - begin)).append(by);
    begin = at + what.size();
  }
  return out.append(s.substr(begin));
}

std::string html_escape(std::string_view s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace bantam
