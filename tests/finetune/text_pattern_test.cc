// SPDX-License-Identifier: Apache-2.0
// Split rules: what PCRE2 is given for what a tokenizer file says, and pieces that cover the text.
#include <doctest/doctest.h>

#include "finetune/text/split_pattern.h"
#include "finetune/text/split_rule.h"
#include "finetune/text/utf8.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::string pieces(const std::string& pattern, std::string_view text) {
  std::vector<std::string_view> out;
  SplitRule(pattern, "t").split(text, out);
  std::string joined;
  for (const auto piece : out) joined += (joined.empty() ? "" : "|") + std::string(piece);
  return joined;
}

std::string refused(const std::string& pattern) {
  return error_of([&] { SplitRule(pattern, "t"); });
}

}  // namespace

TEST_CASE("matches and gaps are pieces") {
  CHECK(pieces("b+", "abbac") == "a|bb|ac");
  CHECK(pieces("b*", "abbac") == "a|bb|ac");
  CHECK(pieces("x", "abc") == "abc");
  CHECK(pieces("(?:)", "ab") == "ab");
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
  for (const char* bad : {"^a",
                          "a$",
                          R"(\bx)",
                          R"(\h)",
                          R"(\1)",
                          "[a[b]]",
                          "[a-z&&[^b]]",
                          "(?i)a",
                          "(?<n>a)",
                          "(*UCP)a",
                          "a{1,3}+",
                          "a{,3}",
                          R"(\x{110000000})",
                          R"(\xFF)",
                          R"([^\S])",
                          R"(\p{Foo})",
                          "a\\",
                          "(a",
                          "[]a]",
                          "\xff",
                          R"(\pL)"}) {
    CAPTURE(bad);
    CHECK(contains(refused(bad), "split rule"));
  }
  CHECK(contains(refused(std::string(100000, 'a')), "bytes"));
}

TEST_CASE("a rule that explodes gives up with a message") {
  const SplitRule rule("(?:a+)+(?:a+)+(?:a+)+[cd]", "t");
  const std::string text(3000, 'a');
  std::vector<std::string_view> out;
  CHECK(contains(error_of([&] { rule.split(text, out); }, ErrorCode::data), "gives up"));
}

TEST_CASE("pieces cover any bytes, and bytes that are not UTF-8 stand alone") {
  Pretokenizer p;
  p.add_rule(SplitRule(R"(\p{N})", "t"));
  p.add_rule(SplitRule(kGpt2Pattern, "t"));
  RandomText random(1);
  for (int i = 0; i < 500; ++i) {
    const std::string text = i % 2 == 0 ? random.bytes(random.next() % 50) : random.utf8(random.next() % 50);
    std::vector<std::string_view> out;
    std::vector<std::unique_ptr<std::string>> store;
    p.split(text, out, store);
    std::string joined;
    for (const auto piece : out) {
      CHECK_FALSE(piece.empty());
      CHECK((utf8_valid(piece) || utf8_valid_prefix(piece) == 0));
      joined += piece;
    }
    CHECK(joined == text);
  }
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
