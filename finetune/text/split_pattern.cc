// SPDX-License-Identifier: Apache-2.0
#include "split_pattern.h"

#include <algorithm>
#include <string_view>

#include "../../kernels/error.h"
#include "split_rule.h"
#include "utf8.h"

namespace bantam {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Unicode's White_Space (PCRE2's own \s also takes U+180E) and Oniguruma's word characters.
constexpr std::string_view kSpace = R"(\p{Z}\x09-\x0D\x{85})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

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
      } else if (in_class_) {
        inside_class(c);
      } else {
        outside_class(c);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::model, str(where_, ": split rule '", printable(std::string(in_)), "': ", what, " at byte ",
                                      at_, ": not supported"));
  }
  bool looking_at(std::string_view s) const { return in_.substr(at_).starts_with(s); }
  void copy(size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }

  void inside_class(char c) {
    if (c == '[') refuse("a class within a class");
    if (looking_at("&&")) refuse("&& within a class");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void outside_class(char c) {
    if (c == '^' || c == '$') refuse("an anchor");
    if (c == '[') {
      in_class_ = true;
      copy(1);
      if (looking_at("^")) copy(1);
      if (looking_at("]")) refuse("an empty class");
      return;
    }
    if (looking_at("(*")) refuse("(*");
    if (looking_at("(?")) {
      static constexpr std::string_view kGroups[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"};
      const auto* known = std::find_if(std::begin(kGroups), std::end(kGroups), [&](auto g) { return looking_at(g); });
      if (known == std::end(kGroups)) refuse("a group of this kind");
      copy(known->size());
      return;
    }
    if (looking_at("}+")) refuse("}+");  // possessive to PCRE2, a repeated repetition to Oniguruma
    if (looking_at("{,")) refuse("{,");
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
    if (in_class_ && negated) refuse("a negated escape within a class");
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
};

}  // namespace

std::string to_pcre2(const std::string& pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

const NamedSplit& named_split(std::string_view name, const std::string& where) {
  static const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string qwen2 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::vector<NamedSplit> known = {
      {.name = "gpt-2", .patterns = {kGpt2Pattern}},
      {.name = "llama-bpe", .patterns = {llama3}, .ignore_merges = true, .adds_bos = true},
      {.name = "llama3", .patterns = {llama3}, .ignore_merges = true, .adds_bos = true},
      {.name = "llama-v3", .patterns = {llama3}, .ignore_merges = true, .adds_bos = true},
      {.name = "qwen2", .patterns = {qwen2}, .nfc = true},
      {.name = "smollm", .patterns = {R"(\p{N})", kGpt2Pattern}},
  };
  for (const NamedSplit& n : known) {
    if (n.name == name) return n;
  }
  std::string names;
  for (const NamedSplit& n : known) names += str(names.empty() ? "" : ", ", n.name);
  throw Error(ErrorCode::model, str(where, ": tokenizer.ggml.pre is '", printable(name), "', known are ", names),
              "use the model's original folder with its tokenizer.json");
}

}  // namespace bantam
