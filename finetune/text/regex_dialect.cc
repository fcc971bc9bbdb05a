// SPDX-License-Identifier: Apache-2.0
#include "regex_dialect.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "../../kernels/error.h"
#include "utf8.h"

namespace bantam {

namespace {

// Unicode's White_Space (PCRE2's own \s also takes U+180E) and Oniguruma's word characters.
constexpr std::string_view kSpace = R"(\p{Z}\x09-\x0D\x{85})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

constexpr int kMostNesting = 32;

bool ascii_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    if (!utf8_valid(in_)) refuse("bytes that are not UTF-8");
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else {
        outside_class(c);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::model, str(where_, ": expression '", printable(std::string(in_)), "': ", what, " at byte ",
                                      at_, ": not supported"));
  }
  bool looking_at(std::string_view s) const { return in_.substr(at_).starts_with(s); }
  void copy(size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }

  // One class, from its '[' on, as an expression for one character. Plain classes pass as they are; escapes that stand
  // for all but something, classes within the class and && become alternatives and look-aheads.
  std::string read_class() {
    if (++depth_ > kMostNesting) refuse("classes nested this deep");
    const size_t begin = at_++;
    const bool negated = looking_at("^");
    if (negated) ++at_;
    if (looking_at("]")) refuse("an empty class");
    std::vector<std::string> sets;  // between &&
    std::vector<std::string> members;
    std::string plain, saved;
    saved.swap(out_);
    const auto close_set = [&] {
      if (!plain.empty()) members.push_back(str("[", plain, "]"));
      if (members.empty()) refuse("an empty set");
      std::string all;
      for (const std::string& m : members) all += str(all.empty() ? "" : "|", m);
      sets.push_back(members.size() == 1 ? all : str("(?:", all, ")"));
      members.clear(), plain.clear();
    };
    for (;;) {
      if (at_ >= in_.size()) at_ = begin, refuse("a class without its end");
      if (looking_at("[:")) refuse("a class of the kind [:name:]");
      if (looking_at("&&")) {
        at_ += 2;
        close_set();
      } else if (in_[at_] == ']') {
        ++at_;
        break;
      } else if (in_[at_] == '[') {
        members.push_back(read_class());
      } else if (in_[at_] == '\\') {
        const char kind = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
        const bool all_but = kind == 'S' || kind == 'W' || kind == 'D';
        in_class_ = !all_but;
        escape();
        in_class_ = false;
        if (all_but) {
          members.push_back(out_);
        } else {
          plain += out_;
        }
        out_.clear();
      } else {
        const size_t n = utf8_sequence(in_.substr(at_));
        plain += in_.substr(at_, n);
        at_ += n;
      }
    }
    const bool simple = members.empty() && sets.empty();
    std::string result;
    if (simple) {
      result = str(negated ? "[^" : "[", plain, "]");
    } else {
      close_set();
      for (size_t i = 0; i + 1 < sets.size(); ++i) result += str("(?=", sets[i], ")");
      result += sets.back();
      result = negated ? str("(?:(?!", result, ")(?s:.))") : str("(?:", result, ")");
    }
    out_.swap(saved);
    --depth_;
    return result;
  }

  void outside_class(char c) {
    if (c == '^' || c == '$') {  // of lines
      out_ += str("(?m:", c, ")");
      ++at_;
      return;
    }
    if (c == '[') {
      out_ += read_class();
      return;
    }
    if (looking_at("(*")) refuse("(*");
    if (looking_at("(?")) {
      static constexpr std::string_view kGroups[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?m:"};
      if (at_ == 0 && looking_at("(?i)")) return copy(4);  // further inside, its alternatives are counted otherwise
      const auto* known = std::find_if(std::begin(kGroups), std::end(kGroups), [&](auto g) { return looking_at(g); });
      if (known == std::end(kGroups)) refuse("a group of this kind");
      // Oniguruma's m lets the dot match a line's end, which PCRE2 calls s.
      out_ += *known == "(?m:" ? "(?s:" : *known;
      at_ += known->size();
      return;
    }
    if (looking_at("}+")) refuse("}+");  // possessive to PCRE2, a repeated repetition to Oniguruma
    if (looking_at("{,") && at_ + 2 < in_.size() && in_[at_ + 2] >= '0' && in_[at_ + 2] <= '9') {
      out_ += "{0,";
      at_ += 2;
      return;
    }
    copy(1);
  }

  void escape() {
    if (at_ + 1 >= in_.size()) refuse("a lone backslash");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        return set(kSpace, false);
      case 'S':
        return set(kSpace, true);
      case 'w':
        return set(kWord, false);
      case 'W':
        return set(kWord, true);
      case 'd':
        return set(R"(\p{Nd})", false);
      case 'D':
        return set(R"(\p{Nd})", true);
      case 'b':
      case 'B':
        if (in_class_) refuse("a backspace");
        at_ += 2;
        out_ +=
            str(c == 'b' ? "(?:" : "(?!", "(?<=[", kWord, "])(?![", kWord, "])|(?<![", kWord, "])(?=[", kWord, "]))");
        return;
      case 'A':
      case 'z':
      case 'Z':
        if (in_class_) refuse(str("\\", c, " within a class"));
        return copy(2);
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return copy(2);
      case 'p':
      case 'P':
        return property();
      case 'x':
      case 'u':
        return code_point(c);
      default:
        if (ascii_alnum(c)) refuse(str("\\", c));
        return copy(1 + std::max<size_t>(utf8_sequence(in_.substr(at_ + 1)), 1));
    }
  }

  void set(std::string_view members, bool negated) {
    at_ += 2;
    if (in_class_) {
      out_ += members;
    } else {
      out_ += str(negated ? "[^" : "[", members, "]");
    }
  }

  // General categories pass; longer names are scripts, which PCRE2 must not read as script extensions.
  void property() {
    const size_t close = in_.find('}', at_);
    if (!in_.substr(at_ + 2).starts_with("{") || close == std::string_view::npos) refuse("\\p without {name}");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const bool negated = name.starts_with("^");
    if (negated) name.remove_prefix(1);
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char ch) { return ascii_alnum(ch) || ch == '_'; })) {
      refuse("this \\p{name}");
    }
    out_ += str("\\", in_[at_ + 1], "{", negated ? "^" : "", name.size() > 2 ? "sc:" : "", name, "}");
    at_ = close + 1;
  }

  void code_point(char kind) {
    size_t begin = at_ + 2, end = begin;
    if (kind == 'x' && in_.substr(begin).starts_with("{")) {
      ++begin;
      end = in_.find('}', begin);
      if (end == std::string_view::npos) refuse("\\x{ without }");
    } else {
      end = begin + (kind == 'x' ? 2 : 4);
    }
    if (end > in_.size() || end == begin || end - begin > 6) refuse("this character code");
    const std::string_view digits = in_.substr(begin, end - begin);
    if (!std::all_of(digits.begin(), digits.end(), hex)) refuse("this character code");
    const bool braced = in_[begin - 1] == '{';
    if (kind == 'x' && !braced && digits[0] > '7') refuse("a byte code");  // a byte there, a character here
    out_ += str("\\x{", digits, "}");
    at_ = end + (braced ? 1 : 0);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  int depth_ = 0;
};

}  // namespace

std::string to_pcre2(const std::string& pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace bantam
