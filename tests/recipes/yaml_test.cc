// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "recipe_testing.h"
#include "recipes/values.h"
#include "recipes/yaml_tree.h"

using namespace bantam;

namespace {

std::string problem_of(const std::string& text) {
  std::vector<YamlProblem> problems;
  parse_yaml(text, problems);
  if (problems.empty()) return "none";
  return str(problems[0].line, ":", problems[0].column, ": ", problems[0].message);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("scalars keep their text and their place") {
  std::vector<YamlProblem> problems;
  const YamlNode root = parse_yaml("a: no\nb: 1:30\nc: 012\nd: 2026-11-29\n  \ne: {f: '1', g: [x, y]}\n", problems);
  REQUIRE(problems.empty());
  CHECK(root.find("a")->text == "no");
  CHECK(root.find("b")->text == "1:30");
  CHECK(root.find("c")->text == "012");
  CHECK(root.find("d")->text == "2026-11-29");
  CHECK(root.find("e")->find("f")->text == "1");
  CHECK(root.find("e")->find("g")->items.at(1).text == "y");
  CHECK(root.find("e")->find("g")->items.at(1).line == 6);
  CHECK(root.find("e")->find("g")->items.at(1).column == 20);
}

TEST_CASE("a byte order mark and CRLF are no content") {
  std::vector<YamlProblem> problems;
  const YamlNode root = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 1\r\nb: 2\r\n",
      problems);
  REQUIRE(problems.empty());
  CHECK(root.find("a")->text == "1");
  CHECK(root.find("b")->text == "2");
  CHECK(root.find("a")->column == 4);
}

TEST_CASE("duplicate keys are found at any depth, with both lines") {
  CHECK(problem_of("a: 1\nb: 2\na: 3\n") == "3:1: a: found the key a second time, the first is on line 1");
  CHECK(problem_of("x:\n  - {k: 1, k: 2}\n") == "2:12: k: found the key a second time, the first is on line 2");
}

TEST_CASE("what is no recipe says where it stops being one") {
  CHECK(contains(problem_of("a: [1, 2\n"), "not valid YAML"));
  CHECK(problem_of("a: 1\nb: \x01\n") == "2:4: found the control character 1, expected text");
  CHECK(problem_of("a: 1\x04\nb: 2\n") == "1:5: found the control character 4, expected text");
  CHECK(problem_of("a: \xff\n") == "1:4: found the byte 255, expected UTF-8 text");
  CHECK(contains(problem_of("a: 1\n---\nb: 2\n"), "second document"));
  CHECK(problem_of("a: !!int 3\n") ==
        "1:4: found the tag tag:yaml.org,2002:int, expected none: types come from the key");
  CHECK(contains(problem_of("a: &x {b: 1}\nc: {<<: *x}\n"), "merge key"));
  CHECK(contains(problem_of("? [a]\n: 1\n"), "as a key, expected a name"));
}

TEST_CASE("hostile input ends in a message") {
  CHECK(contains(problem_of(std::string(17, '[') + std::string(17, ']')), "nested more than 16 deep"));
  CHECK(problem_of(std::string(16, '[') + std::string(16, ']')) == "none");
  CHECK(contains(problem_of(std::string(100000, '[')), "is a bracket not closed?"));
  std::string deep = "a: ";
  for (int i = 0; i < 40; ++i) deep += "{a: ";
  CHECK(contains(problem_of(deep), "nested more than 16 deep"));
  CHECK(contains(problem_of("a: " + std::string(kMaxYamlBytes, 'x')), "expected a recipe of at most"));
  // Nine levels of nine aliases each stand for 9^9 values.
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += str("a", i, ": &a", i, " [");
    for (int k = 0; k < 9; ++k) bomb += str(k ? "," : "", "*a", i - 1);
    bomb += "]\n";
  }
  CHECK(contains(problem_of(bomb), "more than 20000 values"));
  CHECK(contains(problem_of("a: &x [1, *x]\n"), "alias of the value it stands in"));
}

TEST_CASE("an alias is the value it names") {
  CHECK(recipe_of("test_datasets: &d [e.jsonl]\n").test_datasets.size() == 1);
  const Recipe r = parse_recipe("base_model: &m here\noutput_dir: *m\ndatasets: [d]\n", "r.yaml").recipe;
  CHECK(r.base_model == r.output_dir);
}

TEST_CASE("quoted text reads back") {
  for (const std::string text : {"plain",
                                 "",
                                 "no",
                                 "1e4",
                                 "null",
                                 "a: b",
                                 "# x",
                                 "quote\"back\\slash",
                                 "tab\tline\nend",
                                 "\xC3\xA9\xE2\x80\xA8",
                                 "-x",
                                 "[x]",
                                 " lead",
                                 "trail ",
                                 "~",
                                 "...",
                                 "{a}",
                                 "*x",
                                 "&x",
                                 "%x",
                                 "\x01\x7f"}) {
    CAPTURE(text);
    std::vector<YamlProblem> problems;
    const YamlNode root = parse_yaml("k: " + quote_yaml(text) + "\n", problems);
    REQUIRE(problems.empty());
    REQUIRE(root.find("k")->kind == YamlNode::Kind::scalar);
    CHECK(root.find("k")->text == text);
  }
}
