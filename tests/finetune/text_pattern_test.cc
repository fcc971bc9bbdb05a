// SPDX-License-Identifier: Apache-2.0
// Split rules: what PCRE2 is given for what a tokenizer file says, and pieces that cover the text.
#include <doctest/doctest.h>

#include "finetune/text/named_split.h"
#include "finetune/text/regex.h"
#include "finetune/text/utf8.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::string pieces(const std::string& pattern, std::string_view text) {
  std::vector<std::string_view> out;
  Regex(pattern, "t").isolate(text, out);
  std::string joined;
  for (const auto piece : out) joined += (joined.empty() ? "" : "|") + std::string(piece);
  return joined;
}

std::string refused(const std::string& pattern) {
  return error_of([&] { Regex(pattern, "t"); });
}

}  // namespace

TEST_CASE("matches and gaps are pieces") {
  CHECK(pieces("b+", "abbac") == "a|bb|ac");
  CHECK(pieces("b*", "abbac") == "a|bb|a|c");
  CHECK(pieces("x", "abc") == "abc");
  CHECK(pieces("(?:)", "ab") == "a|b");
  CHECK(pieces("x", "") == "");
  CHECK(pieces(kGpt2Pattern, "I'll go  home 12") == "I|'ll| go| | home| 12");
  CHECK(pieces(R"(\p{N})", "a12b\u0664") == "a|1|2|b|\u0664");
}

TEST_CASE("Unicode classes are those of the tokenizers' own engine") {
  CHECK(pieces(R"(\s)", "a\u00a0b\u0085c\u3000d") == "a|\u00a0|b|\u0085|c|\u3000|d");
  CHECK(pieces(R"(\s)", "a\u180eb") == "a\u180eb");
  CHECK(pieces(R"([\s]+)", "a \u2029b") == "a| \u2029|b");
  CHECK(pieces(R"(\S+)", "ab \u180e") == "ab| |\u180e");
  CHECK(pieces(R"(\w+)", "a_\u0301\u0661-") == "a_\u0301\u0661|-");
  CHECK(pieces(R"(\p{Han}+)", "a\u4f60\u597d\u3002b") == "a|\u4f60\u597d|\u3002b");  // not the script's extensions
  CHECK(pieces(R"(\u4F60)", "a\u4f60") == "a|\u4f60");
  CHECK(pieces("(?i:'s)", "'S'\u017f") == "'S|'\u017f");
}

TEST_CASE("constructs that the two engines read differently are refused by name") {
  for (const char* bad :
       {R"(\h)", R"(\1)", "a(?i)b", "(?<n>a)", "(*UCP)a", "a{1,3}+", R"(\x{110000000})", R"(\xFF)", R"([\b])",
        "[[:alpha:]]", "[&&a]", "[a", R"(\p{Foo})", "a\\", "(a", "[]a]", "\xff", R"(\pL)"}) {
    CAPTURE(bad);
    CHECK(contains(refused(bad), "expression"));
  }
  CHECK(contains(refused(std::string(100000, 'a')), "bytes"));
}

TEST_CASE("a rule that explodes gives up with a message") {
  const Regex rule("(?:a+)+(?:a+)+(?:a+)+[cd]", "t");
  const std::string text(3000, 'a');
  std::vector<std::string_view> out;
  CHECK(contains(error_of([&] { rule.isolate(text, out); }, ErrorCode::data), "gives up"));
}

TEST_CASE("classes within classes, && and escapes for all but something") {
  CHECK(pieces("[a[bc]]+", "xabcx") == "x|abc|x");
  CHECK(pieces("[a-z&&[^b]]+", "abcz") == "a|b|cz");
  CHECK(pieces(R"([^\S\n]+)", "a \t\n b") == "a| \t|\n| |b");
  CHECK(pieces(R"([\W\d]+)", "a1-b") == "a|1-|b");
  CHECK(pieces(R"([^a[bc]&&\w]+)", "abcd-") == "abc|d-");
  CHECK(pieces("[x&&[a-z]&&[^y]]", "xyx") == "x|y|x");
}

TEST_CASE("anchors are those of lines, as Oniguruma has them") {
  CHECK(pieces("^a", "a\naa") == "a|\n|a|a");
  CHECK(pieces(R"(\s+$)", "a  \nb  ") == "a|  |\nb|  ");
  CHECK(pieces("a$", "a\na") == "a|\n|a");
  CHECK(pieces(R"(\ba)", "a ba a") == "a| ba |a");
  CHECK(pieces(R"(\Ba)", "a ba a") == "a b|a| a");
  CHECK(pieces("a{,2}", "aaa") == "aa|a");
  CHECK(pieces("(?i)A", "ab") == "a|b");
  CHECK(pieces("(?m:a.)", "a\nb") == "a\n|b");
}

TEST_CASE("empty matches are found as Oniguruma walks") {
  std::vector<Span> spans;
  Regex("b*", "t").find("abba", spans);
  std::string found;
  for (const Span& s : spans) found += str(s.begin, "-", s.end, s.match ? "+ " : " ");
  CHECK(found == "0-0+ 0-1 1-3+ 3-4 4-4+ ");
  CHECK(Regex("b*", "t").replace("abba", "_") == "_a_a_");
  CHECK(Regex("x", "t").replace("", "_").empty());
}

TEST_CASE("UTF-8: what is valid") {
  CHECK(utf8_valid("a\u00e9\u4f60\U0001F600"));
  for (const char* bad :
       {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xF5\x80\x80\x80", "\xE0\x80\x80"}) {
    CAPTURE(printable(bad));
    CHECK(utf8_valid_prefix(bad) == 0);
  }
  CHECK(printable("a\n\xFF\u00e9") == "a\\x0a\\xff\u00e9");
}
