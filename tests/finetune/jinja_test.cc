// SPDX-License-Identifier: Apache-2.0
// The Jinja evaluator against Jinja2: templates of our own by feature (tests/reference/make_jinja_golden.py), and what
// is ours alone: refusals by name, limits, threads.
#include "finetune/text/jinja/jinja.h"

#include <doctest/doctest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

const ordered_json& golden() {
  static const ordered_json j =
      ordered_json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "jinja_golden.json"));
  return j;
}

std::tm golden_clock() {
  std::tm t{};
  t.tm_year = 125, t.tm_mon = 2, t.tm_mday = 9, t.tm_hour = 14, t.tm_min = 5, t.tm_sec = 7;
  return t;
}

const JinjaOptions kOptions{.clock = golden_clock};

const JinjaValue& context() {
  static const JinjaValue value = JinjaValue::from_json(golden().at("context"));
  return value;
}

Rendered render(const std::string& source, const JinjaOptions& options = kOptions) {
  return JinjaTemplate::parse(source, "t").render(context(), options);
}

// What came out, or "code: message".
std::string outcome(const std::string& source, const JinjaOptions& options = kOptions) {
  try {
    return render(source, options).text;
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.code())) + ": " + e.what();
  }
}

// The message without "t:line:column: ".
std::string bare(std::string message) {
  REQUIRE(message.starts_with("t:"));
  size_t at = message.find(':', 2);
  at = message.find(": ", at + 1);
  REQUIRE(at != std::string::npos);
  return message.substr(at + 2);
}

void check_group(const std::string& group) {
  size_t count = 0;
  for (const auto& c : golden().at("cases")) {
    if (c.at("group") != group) continue;
    ++count;
    const std::string source = c.at("template");
    CAPTURE(source);
    if (!c.contains("text")) {
      FAIL_CHECK("Jinja2 raises: " << c.dump());
      continue;
    }
    try {
      const Rendered out = render(source);
      CHECK(out.text == c.at("text").get<std::string>());
      ordered_json spans = ordered_json::array();
      for (const auto& s : out.generation) spans.push_back({s.begin, s.end});
      CHECK(spans == c.value("generation", ordered_json::array()));
    } catch (const Error& e) {
      FAIL_CHECK(e.what());
    }
  }
  CHECK(count > 0);
}

}  // namespace

TEST_CASE("jinja: output") {
  check_group("output");
}
TEST_CASE("jinja: white space") {
  check_group("whitespace");
}
TEST_CASE("jinja: if, for, set, filter") {
  check_group("control");
}
TEST_CASE("jinja: lengths of loops whose items are not known before") {
  check_group("loop_length");
}
TEST_CASE("jinja: scopes and namespaces") {
  check_group("scope");
}
TEST_CASE("jinja: macros") {
  check_group("macro");
}
TEST_CASE("jinja: generation blocks") {
  check_group("generation");
}
TEST_CASE("jinja: operators") {
  check_group("operators");
}
TEST_CASE("jinja: attributes, items, slices") {
  check_group("access");
}
TEST_CASE("jinja: methods of texts") {
  check_group("strings");
}
TEST_CASE("jinja: filters") {
  check_group("filters");
}
TEST_CASE("jinja: iterators are read once") {
  check_group("iterator");
}
TEST_CASE("jinja: tests") {
  check_group("tests");
}
TEST_CASE("jinja: functions") {
  check_group("functions");
}
TEST_CASE("jinja: chat templates") {
  check_group("chatml");
}

TEST_CASE("jinja: what Jinja2 raises, with its words") {
  for (const auto& c : golden().at("cases")) {
    if (c.at("group") != "error") continue;
    const std::string source = c.at("template");
    CAPTURE(source);
    REQUIRE(c.contains("error"));
    try {
      render(source);
      FAIL_CHECK("nothing raised");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::data);
      CHECK(bare(e.what()) == c.at("error").get<std::string>());
    }
  }
}

TEST_CASE("jinja: what Jinja2 does not parse") {
  for (const auto& c : golden().at("cases")) {
    if (c.at("group") != "error_syntax") continue;
    const std::string source = c.at("template");
    CAPTURE(source);
    REQUIRE(c.contains("syntax_error"));
    try {
      JinjaTemplate::parse(source, "t");
      FAIL_CHECK("parsed");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::model);
      CHECK(bare(e.what()).size() > 5);
    }
  }
}

TEST_CASE("jinja: what is not supported is refused by name and place, when parsed") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ x | shuffle }}", "4: t:1:8: unknown filter 'shuffle'"},
      {"\n {{ x is perfect }}", "4: t:2:10: unknown test 'perfect'"},
      {"{{ text.encode('utf8') }}", "4: t:1:8: unknown method 'encode'"},
      {"a\r\nb{% call m() %}x{% endcall %}", "4: t:2:5: statement 'call' is not supported"},
      {"{% include 'x' %}", "4: t:1:4: statement 'include' is not supported"},
      {"{% import 'x' as y %}", "4: t:1:4: statement 'import' is not supported"},
      {"{% extends 'x' %}", "4: t:1:4: statement 'extends' is not supported"},
      {"{% block x %}{% endblock %}", "4: t:1:4: statement 'block' is not supported"},
      {"{% with x = 1 %}{% endwith %}", "4: t:1:4: statement 'with' is not supported"},
      {"{% do x %}", "4: t:1:4: statement 'do' is not supported"},
      {"{% autoescape true %}{% endautoescape %}", "4: t:1:4: statement 'autoescape' is not supported"},
      {"{% frobnicate %}", "4: t:1:4: unknown statement 'frobnicate'"},
      {"{{ cycler('a') }}", "4: t:1:4: unknown function 'cycler'"},
      {"{% if no %}{{ now() }}{% endif %}", "4: t:1:15: unknown function 'now'"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}", "4: t:1:19: 'caller' in a macro is not supported"},
      {"{% macro m() %}{{ kwargs }}{% endmacro %}", "4: t:1:19: 'kwargs' in a macro is not supported"},
      {"{% for x in y recursive %}{% endfor %}", "4: t:1:15: recursive loops are not supported"},
      {"{% for x in list %}{{ loop.cycle(1) }}{% endfor %}", "4: t:1:28: unknown attribute 'loop.cycle'"},
      {"{{ 2 ** 3 }}", "4: t:1:6: operator '**' is not supported"},
      {"{{ range(*list) }}", "4: t:1:10: '*' arguments are not supported"},
      {"{{ x | tojson(html=1) }}", "4: t:1:8: unknown argument 'html' of filter 'tojson'"},
      {"{{ x | replace('a') }}", "4: t:1:8: filter 'replace' needs an argument"},
      {"{{ x | upper(1) }}", "4: t:1:8: filter 'upper' takes at most 0 arguments"},
      {"{{ x | map('nope') }}", "4: t:1:12: unknown filter 'nope'"},
      {"{{ x | selectattr('a', 'nope') }}", "4: t:1:24: unknown test 'nope'"},
      {"{{ x | reject('nope') }}", "4: t:1:15: unknown test 'nope'"},
      {"{{ 99999999999999999999 }}", "4: t:1:4: a whole number beyond 64 bits"},
      {"{{ 1e999 }}", "4: t:1:4: a number beyond the range of doubles"},
      {"{{ '\\ud83d' }}", "4: t:1:4: a surrogate is no character"},
      {"{{ '\\N{BULLET}' }}", "4: t:1:4: \\N escapes are not supported"},
      {"{% break %}", "4: t:1:4: 'break' outside of a loop, or in a block that cannot be left by it"},
      {"{% for x in list %}{% generation %}{% continue %}{% endgeneration %}{% endfor %}",
       "4: t:1:39: 'continue' outside of a loop, or in a block that cannot be left by it"},
      {"a\xff", "4: t:1:2: not UTF-8"},
      {"{% if yes %}\n{% for x in y %}\n", "4: t:2:4: this block is not closed: 'else' is missing"},
  };
  for (const auto& [source, want] : cases) CHECK(outcome(source) == want);
}

TEST_CASE("jinja: what is found to be unsupported only when rendered") {
  CHECK(outcome("{% set f = 'zfill' %}{{ 'x'[f] }}") == "4: t:1:28: 'zfill' of str is not supported");
  CHECK(outcome("{{ list.index }}") == "4: t:1:8: 'index' of list is not supported");
  CHECK(outcome("{{ '%.2f' % pi }}") ==
        "4: t:1:11: '%' formatting with '%.' is not supported (%s, %d, %i, %r and %% are)");
  CHECK(outcome("{{ words | map(name) }}") == "4: t:1:12: unknown filter 'World'");
  CHECK(outcome("{{ words | map('upper') }}") == "4: t:1:4: printing an iterator is not supported: add | list");
  CHECK(outcome("{{ strftime_now('%c') }}").starts_with("4: t:1:4: strftime_now: '%c' is not supported"));
  CHECK(outcome("{% for x in list %}{{ loop }}{% endfor %}") == "4: t:1:23: printing loop is not supported");
}

TEST_CASE("jinja: errors tell the place; the template's own keep their message") {
  CHECK(outcome("a\n b {{ raise_exception('Roles: ' ~ n) }}") == "3: t:2:7: Roles: 7");
  CHECK(outcome("\n\n{{ 1 + ('a' ~ 'b') }}") == "3: t:3:6: unsupported operand type(s) for +: 'int' and 'str'");
  CHECK(outcome("{{ messages[0]\n  .content.x.y }}") == "3: t:2:13: 'str object' has no attribute 'x'");
  CHECK(outcome("{{ big * big }}") == "3: t:1:8: a whole number beyond 64 bits");
  CHECK(outcome("{{ -(-9223372036854775807 - 1) }}") == "3: t:1:4: a whole number beyond 64 bits");
  CHECK(outcome("{{ (-9223372036854775807 - 1) // -1 }}") == "3: t:1:31: a whole number beyond 64 bits");
  CHECK(outcome("{{ (-9223372036854775807 - 1) % -1 }}") == "0");
  CHECK(outcome("{{ '99999999999999999999' | int }}") == "3: t:1:29: a whole number beyond 64 bits");
}

TEST_CASE("jinja: limits end a rendering, each with its name") {
  const std::string loops =
      "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}x"
      "{% endfor %}{% endfor %}{% endfor %}";
  JinjaOptions few = kOptions;
  few.max_loop_iterations = 5000;
  CHECK(outcome(loops, few) == "3: t:1:56: more than 5000 loop iterations (max_loop_iterations)");
  few = kOptions;
  few.max_steps = 10000;
  CHECK(outcome(loops, few).find("more than 10000 evaluation steps (max_steps)") != std::string::npos);
  few = kOptions;
  few.max_output_bytes = 1000;
  CHECK(outcome(loops, few).find("more than 1000 bytes of output (max_output_bytes)") != std::string::npos);
  CHECK(outcome("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", few)
            .find("a text of more than 1000 bytes (max_output_bytes)") != std::string::npos);
  CHECK(outcome("{{ ('x' * 900).replace('x', 'abc') }}", few).find("a text of more than 1000") != std::string::npos);
  CHECK(outcome("{{ range(99) | map('upper') | map(attribute='q') | join('x' * 500) }}", few)
            .find("a text of more than 1000") != std::string::npos);
  CHECK(outcome("{{ [('x' * 500), ('y' * 600)] | tojson }}", few).find("a text of more than 1000") !=
        std::string::npos);
  CHECK(outcome("{{ ['x' * 500, 'y' * 600] ~ '' }}", few).find("a text of more than 1000") != std::string::npos);
  // Long results cost what is added, not what is there already.
  few = kOptions;
  few.max_steps = 400000;
  CHECK(outcome("{{ ((range(20000) | map('string') | list) | tojson | length) > 100000 }}", few) == "True");
  CHECK(outcome("{{ ((range(20000) | map('string') | list) | join('--') | length) > 100000 }}", few) == "True");
  CHECK(outcome("{{ ((range(20000) | map('string') | list) ~ '' | length) != 0 }}", few) == "True");
  CHECK(outcome("{{ ('x' * 999999999999) }}").find("a text of more than") != std::string::npos);
  CHECK(outcome("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("more than 1000 levels") == std::string::npos);
  CHECK(outcome("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("(max_depth)") != std::string::npos);
  CHECK(outcome("{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l] %}{% endfor %}") ==
        "3: t:1:70: values nested deeper than 128 levels");
  // A value of few bytes that stands for 2^100 items.
  const std::string shared =
      "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% set ns.m = [ns.m, ns.m] %}{% endfor %}";
  few = kOptions;
  few.max_steps = 1000000;
  for (const char* use : {"{{ ns.l }}", "{{ ns.l | tojson }}", "{{ ns.l == ns.m }}"}) {
    CHECK(outcome(shared + use, few).starts_with("3: t:"));
  }
}

TEST_CASE("jinja: namespaces that hold each other are freed, and printed up to a depth") {
  CHECK(outcome("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a.b.a.b is defined }}") ==
        "True");
  CHECK(outcome("{% set a = namespace() %}{% set a.a = [a] %}{{ a }}").find("nested too deep to print") !=
        std::string::npos);
  CHECK(outcome("{% set a = namespace() %}{% for x in list %}{% set a.l = loop %}{% endfor %}{{ a.l.index }}{{ "
                "a.l.last }}") == "3True");
  CHECK(outcome("{% set a = namespace() %}{% for x in list %}{% macro m() %}{{ x }}{% endmacro %}{% if x == 1 %}"
                "{% set a.m = m %}{% endif %}{% endfor %}{% set m = a.m %}{{ m() }}") == "1");
}

TEST_CASE("jinja: malformed templates are refused, whatever their depth") {
  const auto nested = [](const std::string& open, const std::string& middle, const std::string& close) {
    std::string s;
    for (int i = 0; i < 20000; ++i) s += open;
    s += middle;
    for (int i = 0; i < 20000; ++i) s += close;
    return s;
  };
  const std::vector<std::string> sources = {
      "{{ " + nested("(", "1", ")") + " }}",
      "{{ " + nested("[", "1", "]") + " }}",
      "{{ " + nested("{1:", "1", "}") + " }}",
      "{{ " + nested("not ", "1", "") + " }}",
      "{{ " + nested("-", "1", "") + " }}",
      "{{ " + nested("1 + ", "1", "") + " }}",
      "{{ " + nested("a.", "b", "") + " }}",
      "{{ a" + nested("", "", "[0]") + " }}",
      "{{ a" + nested("", "", "|upper") + " }}",
      "{{ " + nested("a and ", "1", "") + " }}",
      "{{ " + nested("a if a else ", "1", "") + " }}",
      "{{ a" + nested("", "", " if a") + " }}",
      nested("{% if a %}", "", "{% endif %}"),
      nested("{% for a in b %}", "", "{% endfor %}"),
      nested("{% macro m() %}", "", "{% endmacro %}"),
      "{% for " + nested("(", "a", ")") + " in b %}{% endfor %}",
      nested("{%", "", ""),
      nested("{{", "", ""),
      nested("{% raw %}{%", "", ""),
      "{{ " + nested("a(", "1", ")") + " }}",
      "{{ a" + nested("", "", " is defined") + " }}",
      "{{ " + nested("a[", "1", "]") + " }}",
  };
  for (const auto& source : sources) {
    CAPTURE(source.substr(0, 40));
    try {
      JinjaTemplate::parse(source, "t");
      FAIL_CHECK("parsed");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::model);
    }
  }
  // Long, but not deep.
  std::string chain = "{% if no %}";
  for (int i = 0; i < 5000; ++i) chain += "{% elif no %}";
  CHECK(outcome(chain + "{% else %}x{% endif %}") == "x");
  std::string list;
  for (int i = 0; i < 5000; ++i) list += "'x' ~ ";
  CHECK(outcome("{{ (" + list + "'y') | length }}") == "5001");
}

TEST_CASE("jinja: values from JSON") {
  CHECK_THROWS_WITH_AS(JinjaValue::from_json(ordered_json::parse("[18446744073709551615]")),
                       "whole number too large: 18446744073709551615", Error);
  ordered_json deep = 1;
  for (int i = 0; i < 200; ++i) deep = ordered_json::array({deep});
  CHECK_THROWS_AS(JinjaValue::from_json(deep), Error);
  std::string many = "{";
  for (int i = 0; i < 50; ++i) many += "\"k" + std::to_string(i) + "\": " + std::to_string(i) + ", ";
  const JinjaValue v = JinjaValue::from_json(ordered_json::parse(many + "\"z\": 1}"));
  REQUIRE(v.find("k37") != nullptr);
  CHECK(v.find("k37")->integer() == 37);
  CHECK(v.find("k50") == nullptr);
  CHECK(v.entries().back().first.text() == "z");
  const JinjaValue twice = JinjaValue::dict({{"a", 1}, {"b", 2}, {"a", 3}});
  CHECK(twice.entries().size() == 2);
  CHECK(twice.find("a")->integer() == 3);
  CHECK_THROWS_AS(JinjaTemplate::parse("x", "t").render(JinjaValue(1)), Error);
}

TEST_CASE("jinja: one template and one context in several threads") {
  const auto shared = JinjaTemplate::parse(
      "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% set ns = namespace(n=0) %}{% for m_ in messages %}{% generation "
      "%}"
      "{{ m(m_.content) }}{% endgeneration %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ nested | tojson }}",
      "t");
  CHECK(shared.has_generation());
  const Rendered want = shared.render(context(), kOptions);
  CHECK(want.generation.size() == 5);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Rendered out = shared.render(context(), kOptions);
        if (out.text != want.text || out.generation != want.generation) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("jinja: the date is the local one unless a clock is given") {
  std::time_t before = std::time(nullptr);
  const std::string out = outcome("{{ strftime_now('%Y-%m-%d') }}", {});
  std::time_t after = std::time(nullptr);
  std::set<std::string> days;
  for (std::time_t t : {before, after}) {
    char text[32];
    std::tm day{};
    localtime_r(&t, &day);
    std::strftime(text, sizeof(text), "%Y-%m-%d", &day);
    days.insert(text);
  }
  CHECK(days.count(out) == 1);
  CHECK(outcome("{{ strftime_now('%d %b %Y') }}") == "09 Mar 2025");
}
