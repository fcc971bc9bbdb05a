// SPDX-License-Identifier: Apache-2.0
#include "lexer.h"

#include <utf8proc.h>

#include "../../../kernels/error.h"
#include "../utf8.h"
#include "unicode.h"

namespace bantam {
namespace {

constexpr size_t npos = std::string_view::npos;
using Kind = JinjaTokenKind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_code(uint32_t code) {
  if (code < 0x80) return code == '_' || (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
  const auto category = utf8proc_category(static_cast<int32_t>(code));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;  // letters, marks, numbers
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<JinjaToken> run() {
    while (at_ < source_.size()) root();
    put(Kind::end, source_.size(), {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t at, std::string message) { throw JinjaSyntaxError{at, std::move(message)}; }
  void put(Kind kind, size_t at, std::string_view text) { tokens_.push_back({kind, at, text}); }
  bool stands(std::string_view what) const { return source_.substr(at_).starts_with(what); }

  size_t spaces_end(size_t at) const {
    for (size_t n = 0; at < source_.size(); at += n)
      if (!is_python_space(text_code(source_.substr(at), n))) break;
    return at;
  }

  // Template text up to a tag; sign: what stands behind the tag's opening.
  void put_text(size_t begin, size_t end, char sign, bool variable) {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text = text_strip(text, std::nullopt, false, true);
    } else if (sign != '+' && !variable) {
      const size_t line = text.rfind('\n') + 1;  // 0 when there is none
      if ((line > 0 || line_starting_) && text_strip(text.substr(line), std::nullopt, true, false).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) put(Kind::data, begin, text);
  }

  // After an end of a tag: "-" drops white space, "+" nothing, neither one line end.
  void trim_after(char sign, bool newline) {
    if (sign == '-') {
      at_ = spaces_end(at_);
    } else if (sign != '+' && newline && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = source_[at_ - 1] == '\n';
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void root() {
    size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == npos || open + 1 >= source_.size()) {
        put(Kind::data, at_, source_.substr(at_));
        at_ = source_.size();
        return;
      }
      const char next = source_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char kind = source_[open + 1], sign = sign_at(open + 2);
    const size_t inside = open + 2 + (sign != '\0');
    put_text(at_, open, sign, kind == '{');
    if (kind == '#') {
      at_ = inside;
      comment(open);
    } else if (kind == '%' && raw_begins(inside)) {
      raw(open);
    } else {
      at_ = inside;
      put(kind == '{' ? Kind::variable_begin : Kind::block_begin, open, source_.substr(open, 2));
      tag(kind == '{', open);
    }
  }

  void comment(size_t open) {
    const size_t close = source_.find("#}", at_);
    if (close == npos) fail(open, "a comment that is not closed");
    const char sign = close > at_ ? sign_at(close - 1) : '\0';
    at_ = close + 2;
    trim_after(sign, true);
  }

  // Whether `word` and the end of a block follow; at_ is then behind them.
  bool keyword_block(size_t at, std::string_view word, bool trims) {
    at = spaces_end(at);
    if (!source_.substr(at).starts_with(word)) return false;
    at = spaces_end(at + word.size());
    char sign = '\0';
    if (at < source_.size() && (source_[at] == '-' || (trims && source_[at] == '+'))) sign = source_[at++];
    if (!source_.substr(at).starts_with("%}")) return false;
    at_ = at + 2;
    trim_after(sign, trims);
    return true;
  }
  bool raw_begins(size_t inside) { return keyword_block(inside, "raw", false); }

  void raw(size_t open) {
    const size_t begin = at_;
    const bool line_start = line_starting_;
    for (size_t at = begin;; at += 2) {
      at = source_.find("{%", at);
      if (at == npos) fail(open, "a raw block that is not closed");
      const char sign = sign_at(at + 2);
      if (!keyword_block(at + 2 + (sign != '\0'), "endraw", true)) continue;
      const bool after = line_starting_;
      line_starting_ = line_start;
      put_text(begin, at, sign, false);
      line_starting_ = after;
      return;
    }
  }

  bool tag_ends(bool variable) {
    const char sign = sign_at(at_);
    const std::string_view end = variable ? "}}" : "%}";
    const bool signed_end = sign != '\0' && !(variable && sign == '+') && source_.substr(at_ + 1).starts_with(end);
    if (!signed_end && !stands(end)) return false;
    put(variable ? Kind::variable_end : Kind::block_end, at_, end);
    at_ += end.size() + signed_end;
    trim_after(signed_end ? sign : '\0', !variable);
    return true;
  }

  void tag(bool variable, size_t open) {
    brackets_.clear();
    while (true) {
      if (brackets_.empty() && at_ < source_.size() && tag_ends(variable)) return;
      at_ = spaces_end(at_);
      if (at_ >= source_.size()) fail(open, variable ? "'{{' that is not closed" : "'{%' that is not closed");
      if (brackets_.empty() && tag_ends(variable)) return;
      if (!number() && !name() && !string() && !symbol()) {
        fail(at_, str("unexpected character '", printable(source_.substr(at_, utf8_step()), 20), "'"));
      }
    }
  }
  size_t utf8_step() const {
    size_t n = 0;
    text_code(source_.substr(at_), n);
    return n;
  }

  // Digits with single "_" between them, from `at`; where they end.
  size_t digits_end(size_t at) const {
    const size_t begin = at;
    while (at < source_.size() &&
           (is_digit(source_[at]) || (source_[at] == '_' && at > begin && source_[at - 1] != '_' &&
                                      at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  bool number() {
    if (!is_digit(source_[at_])) return false;
    const size_t begin = at_;
    size_t end = digits_end(begin);
    if (begin == 0 || source_[begin - 1] != '.') {  // no real after a dot: a.0.1
      bool real = false;
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits_end(end + 1);
        real = true;
      }
      if (end + 1 < source_.size() && (source_[end] | 0x20) == 'e') {
        const size_t sign = source_[end + 1] == '+' || source_[end + 1] == '-';
        if (end + 1 + sign < source_.size() && is_digit(source_[end + 1 + sign])) {
          end = digits_end(end + 1 + sign);
          real = true;
        }
      }
      if (real) {
        put(Kind::real, begin, source_.substr(begin, end - begin));
        at_ = end;
        return true;
      }
    }
    end = digits_end(begin);
    if (source_[begin] == '0') {
      const char base = begin + 1 < source_.size() ? static_cast<char>(source_[begin + 1] | 0x20) : '\0';
      if (base == 'x' || base == 'o' || base == 'b') fail(begin, "numbers with a base (0x, 0o, 0b) are not supported");
      for (size_t i = begin; i < end; ++i)
        if (source_[i] != '0' && source_[i] != '_') fail(begin, "a whole number with leading zeros");
    }
    put(Kind::integer, begin, source_.substr(begin, end - begin));
    at_ = end;
    return true;
  }

  bool name() {
    const size_t begin = at_;
    size_t n = 0;
    while (at_ < source_.size() && is_name_code(text_code(source_.substr(at_), n))) at_ += n;
    if (at_ == begin) return false;
    put(Kind::name, begin, source_.substr(begin, at_ - begin));
    return true;
  }

  bool string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) i += source_[i] == '\\' ? 2 : 1;
    if (i >= source_.size()) fail(at_, "a text that is not closed");
    put(Kind::string, at_, source_.substr(at_ + 1, i - at_ - 1));
    at_ = i + 1;
    return true;
  }

  bool symbol() {
    static constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const auto s : kSymbols) {
      if (!stands(s)) continue;
      if (s == "(" || s == "[" || s == "{") brackets_.push_back(s == "(" ? ')' : s == "[" ? ']' : '}');
      if (s == ")" || s == "]" || s == "}") {
        if (brackets_.empty()) fail(at_, str("unexpected '", s, "'"));
        if (brackets_.back() != s[0]) fail(at_, str("unexpected '", s, "', expected '", brackets_.back(), "'"));
        brackets_.pop_back();
      }
      put(Kind::symbol, at_, source_.substr(at_, s.size()));
      at_ += s.size();
      return true;
    }
    return false;
  }

  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::string brackets_;  // that close what is open
  std::vector<JinjaToken> tokens_;
};

}  // namespace

std::string jinja_normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<JinjaToken> jinja_tokens(std::string_view source) {
  return Lexer(source).run();
}

std::string jinja_unescape(std::string_view s, size_t at) {
  std::string out;
  const auto fail = [&](std::string message) { throw JinjaSyntaxError{at, std::move(message)}; };
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 == s.size()) {
      out.push_back(s[i]);
      continue;
    }
    const char c = s[++i];
    static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t letter = kLetters.find(c); letter != npos) {
      out.push_back(kMeant[letter]);
    } else if (c == '\n') {
      // the line goes on
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code = 0;
      for (size_t k = 0; k < digits; ++k) {
        const char d = ++i < s.size() ? s[i] : ' ';
        const char low = static_cast<char>(d | 0x20);
        if (!is_digit(d) && !(low >= 'a' && low <= 'f')) fail(str("truncated \\", std::string(1, c), " escape"));
        code = code << 4 | static_cast<uint32_t>(is_digit(d) ? d - '0' : low - 'a' + 10);
      }
      if (code > 0x10FFFF) fail("illegal Unicode character");
      if (code >= 0xD800 && code < 0xE000) fail("a surrogate is no character");
      utf8_append(out, code);
    } else if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int k = 0; k < 2 && i + 1 < s.size() && s[i + 1] >= '0' && s[i + 1] <= '7'; ++k) {
        code = code * 8 + static_cast<uint32_t>(s[++i] - '0');
      }
      utf8_append(out, code);
    } else if (c == 'N') {
      fail("\\N escapes are not supported");
    } else {
      out.push_back('\\');  // stays, as in Python
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace bantam
