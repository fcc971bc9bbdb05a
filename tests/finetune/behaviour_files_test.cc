// SPDX-License-Identifier: Apache-2.0
// What of a dataset's file is content, where messages point, and what is too much.
#include <doctest/doctest.h>

#include "behaviour_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

const std::string kA = chat_row({{"user", "Hi"}, {"assistant", "Yes"}});
const std::string kB = chat_row({{"user", "The river?"}, {"assistant", "It is long."}});
const std::string kBom = "\xEF\xBB\xBF";

std::string without_end(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

TEST_CASE("a byte order mark at the start of a file is no content, in any format") {
  struct File {
    const char* name;
    DatasetType type;
    std::string content;
  };
  for (const File& f : {File{"d.jsonl", DatasetType::automatic, kA + kB},
                        File{"d.json", DatasetType::automatic, "[" + kA + "," + kB + "]"},
                        File{"d.csv", DatasetType::automatic, "instruction,output\nAdd 1 2,3\n"},
                        File{"d.txt", DatasetType::text, "The quick fox\n"}}) {
    CAPTURE(std::string(f.name));
    ModelFolder m;
    m.spec.type = f.type;
    const Dataset plain = m.read(f.content, f.name), marked = m.read(kBom + f.content, f.name);
    CHECK(plain.samples.size() > 0);
    CHECK(same_samples(plain.samples, marked.samples));
    // Anywhere else it is content.
    if (f.type == DatasetType::text) {
      CHECK(contains(m.whole(m.read("The " + kBom + "fox", f.name).samples[0]), kBom));
    }
  }
}

TEST_CASE("blank lines, a missing last line end and CR LF change no sample") {
  ModelFolder m;
  const Dataset want = m.read(kA + kB);
  const std::string a = without_end(kA), b = without_end(kB);
  for (const std::string& content : {a + "\n" + b, a + "\r\n" + b + "\r\n", "\n\n" + a + "\n \t\n" + b + "\n\n\n",
                                     "\r\n" + a + "\r\n\r\n" + b, kBom + "\n" + a + "\n" + b}) {
    CAPTURE(content);
    const Dataset got = m.read(content);
    CHECK(same_samples(got.samples, want.samples));
    CHECK(got.report.rows_read == 2);
    CHECK(got.report.carriage_returns == 0);
  }
}

TEST_CASE("a malformed line stops with file, line and column; some may be left out, counted with their lines") {
  ModelFolder m;
  const std::string content = kA + "\r\n" + "{\"messages\": [}\n" + kB + "\n" + "{\"messages\": 5}\n" + kA;
  CHECK(contains(m.error(content), "d.jsonl:3:15: "));
  m.options.max_malformed_rows = 1;
  const std::string second = m.error(content);
  CHECK(contains(second, "d.jsonl:6: messages: "));
  CHECK(contains(second, "1 malformed rows before it were left out, which is as many as max_malformed_rows allows"));
  m.options.max_malformed_rows = 2;
  const Dataset d = m.read(content);
  CHECK(d.samples.size() == 3);
  CHECK(d.report.rows_malformed == 2);
  CHECK(d.report.rows_dropped == 2);
  REQUIRE(d.report.affected.size() == 2);
  CHECK(d.report.affected[0].line == 3);
  CHECK(contains(d.report.affected[0].what, "d.jsonl:3:15: "));
  CHECK(d.report.affected[1].line == 6);
  CHECK(contains(d.report.summary(), "(2 malformed)"));
  // The rows that are left keep their identities.
  m.options.max_malformed_rows = 0;
  const Dataset good = m.read(kA + kA + kB + kA + kA);
  CHECK(d.samples.id(1) == good.samples.id(2));
  CHECK(d.samples.id(2) == good.samples.id(4));
}

TEST_CASE("a missing field or one of another type: file, line and path") {
  ModelFolder m;
  const auto error = [&](const std::string& row) { return m.error(kA + "\n" + row + "\n"); };
  m.spec.type = DatasetType::chat;
  CHECK(contains(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": 5}]})"),
                 "d.jsonl:3: messages[1].content: "));
  CHECK(contains(error(R"({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]})"),
                 "d.jsonl:3: messages[1]"));
  CHECK(contains(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": ["x"], "content": "b"}]})"),
                 "d.jsonl:3: messages[1].role: "));
  CHECK(contains(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls":
                 [{"function": {"name": 1, "arguments": {}}}]}]})" +
                       std::string()),
                 "d.jsonl:3:"));
  CHECK(contains(error(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]})"),
                 "d.jsonl:3: messages[0].content[0].text: "));
  CHECK(contains(error(R"({"message": []})"), "d.jsonl:3: "));
  CHECK(contains(error(R"({"messages": []})"), "d.jsonl:3: messages"));
  m.spec.type = DatasetType::prompt_completion;
  CHECK(contains(m.error("\n" + row_of({{"prompt", "a"}})), "d.jsonl:2: no field 'completion' (found: prompt)"));
  CHECK(contains(m.error("\n\n" + row_of({{"prompt", 5}, {"completion", ""}})),
                 "d.jsonl:3: prompt: expected text, found number"));
}

TEST_CASE("surrogate pairs are joined; lone ones and invalid UTF-8 make a row malformed, and are counted so") {
  ModelFolder m;
  const auto row = [](const std::string& said) {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ")" + said + "\"}]}\n";
  };
  const Dataset joined = m.read(row(R"(\ud83d\ude00)"));
  CHECK(m.supervised(joined, 0) == "[\U0001F600<|im_end|>\n]");
  CHECK(same_samples(joined.samples, m.read(row("\U0001F600")).samples));
  for (const char* bad :
       {R"(\ud83d)", R"(\ude00)", R"(x\ud83d\ud83d)", "\xFF", "\xED\xA0\x80", "\xC0\xAF", "\xE2\x82"}) {
    CAPTURE(bad);
    m.options.max_malformed_rows = 0;
    CHECK(contains(m.error(kA + row(bad)), "d.jsonl:2:"));
    m.options.max_malformed_rows = 1;
    const Dataset d = m.read(kA + row(bad) + kB);
    CHECK(d.samples.size() == 2);
    CHECK(d.report.rows_malformed == 1);
    CHECK(d.report.affected.at(0).line == 2);
  }
}

TEST_CASE("a CR before a line end is no content; inside of a text it is kept and counted, or becomes a line feed") {
  ModelFolder m;
  const std::string row =
      R"({"messages": [{"role": "user", "content": "a\r\nb"}, {"role": "assistant", "content": "c\rd"}]})";
  const Dataset kept = m.read(row + "\r\n" + row);
  CHECK(contains(m.whole(kept.samples[0]), "user\na\r\nb<|im_end|>"));
  CHECK(m.supervised(kept, 0) == "[c\rd<|im_end|>\n]");
  CHECK(kept.report.carriage_returns == 4);
  CHECK(contains(kept.report.summary(), "4 carriage returns inside of texts, kept"));
  m.options.normalize_newlines = true;
  const Dataset turned = m.read(row + "\r\n" + row);
  CHECK(contains(m.whole(turned.samples[0]), "user\na\nb<|im_end|>"));
  CHECK(m.supervised(turned, 0) == "[c\nd<|im_end|>\n]");
  CHECK(turned.report.carriage_returns == 4);
  CHECK(contains(turned.report.summary(), "4 carriage returns inside of texts, turned into line feeds"));
}

TEST_CASE("nesting in chat rows, in fields and in JSON text within them: an error with the line, or read and written") {
  const std::string source =
      "{%- for t in tools or [] %}{{ t | tojson }}{% endfor %}{%- for m in messages %}{{ '<|im_start|>' + m.role + "
      "'\\n' + (m.content or '') }}{% for c in m.tool_calls or [] %}{{ c.function.name + (c.function.arguments | "
      "tojson) }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  ModelFolder m(source);
  const auto nested = [](size_t n) { return "{\"a\": " + std::string(n, '[') + std::string(n, ']') + "}"; };
  const auto call = [](const std::string& arguments) {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": )"
           R"([{"type": "function", "function": {"name": "f", "arguments": )" +
           arguments + "}}]}]}\n";
  };
  const auto tools = [](const std::string& text) {
    return R"({"tools": )" + text + R"(, "messages": [{"role": "user", "content": "a"}, )" +
           R"({"role": "assistant", "content": "b"}]})" + "\n";
  };
  const auto quoted = [](const std::string& text) { return json(text).dump(); };
  for (const size_t depth : {1, 20, 50}) {
    CAPTURE(depth);
    const Dataset object = m.read(call(nested(depth))), text = m.read(call(quoted(nested(depth))));
    CHECK(contains(m.supervised(object, 0), "f{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}"));
    CHECK(same_samples(object.samples, text.samples));
    CHECK(contains(m.whole(m.read(tools("[" + nested(depth) + "]")).samples[0]), std::string(depth, '[')));
  }
  for (const size_t depth : {65, 300, 200000}) {
    CAPTURE(depth);
    CHECK(contains(m.error(kA + call(nested(depth))), "d.jsonl:2:"));
    CHECK(contains(m.error(kA + call(nested(depth))), "nested deeper than 64 levels"));
    CHECK(contains(m.error(kA + call(quoted(nested(depth)))), "d.jsonl:2:"));
    CHECK(contains(m.error(kA + call(quoted(nested(depth)))), "nested deeper"));
    CHECK(contains(m.error(kA + tools(quoted("[" + nested(depth) + "]"))), "d.jsonl:2: tools"));
    CHECK(contains(m.error(kA + tools("[" + nested(depth) + "]")), "nested deeper"));
  }
  // Every depth between: one or the other, and never a crash.
  for (size_t depth = 50; depth < 70; ++depth) {
    for (const std::string& row : {call(nested(depth)), call(quoted(nested(depth))), tools("[" + nested(depth) + "]"),
                                   tools(quoted("[" + nested(depth) + "]"))}) {
      const std::string e = m.error(kA + row);
      CHECK((e.empty() || contains(e, "nested deeper")));
    }
  }
}

TEST_CASE("a line over the limit of size is an error with its line, also in the middle of a file") {
  ModelFolder m;
  std::string long_row = chat_row({{"user", "a"}, {"assistant", std::string(size_t{65} << 20, 'x')}});
  const std::string e = m.error(kA + "\n" + long_row + kB);
  CHECK(contains(e, "d.jsonl:3:1: line longer than 67108864 bytes"));
}
