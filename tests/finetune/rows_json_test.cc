// SPDX-License-Identifier: Apache-2.0
// Rows of JSON lines and of JSON arrays: what is fine, what is refused and where, limits, and every boundary.
#include <doctest/doctest.h>

#include "rows_testing.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

std::string error(const std::string& name, const std::string& bytes, const ReaderOptions& options = {}) {
  return read_rows(name, bytes, options).error;
}

constexpr const char* kBom = "\xEF\xBB\xBF";

}  // namespace

TEST_CASE("JSONL: BOM, CRLF, blank lines, a missing final newline; lines are physical") {
  const auto r = read_rows("d.jsonl", str(kBom, "{\"a\":1}\r\n\n  \t\r\n{\"b\":\"x\\r\\ny\"}\r\n\r\n{\"c\":null}"));
  CHECK(r.error.empty());
  CHECK(r.format == "JSONL");
  REQUIRE(r.rows.size() == 3);
  CHECK(r.lines == std::vector<int64_t>{1, 4, 6});
  CHECK(r.rows[1].at("b") == "x\r\ny");
  CHECK(r.notes.carriage_returns == 1);
  CHECK(r.rows[2].at("c").is_null());
  CHECK(read_rows("d.ndjson", "\n\n").rows.empty());
  CHECK(read_rows("d.NDJSON", "{}\n").rows.size() == 1);
}

TEST_CASE("JSONL: keys stay in the file's order; of equal keys the last one counts") {
  const auto r = read_rows("d.jsonl", R"({"z":1,"a":{"y":2,"b":[3,{"x":-4,"c":5.5}]},"m":true,"z":"again"})");
  REQUIRE(r.rows.size() == 1);
  CHECK(r.rows[0].dump() == R"({"z":"again","a":{"y":2,"b":[3,{"x":-4,"c":5.5}]},"m":true})");
  // Large objects go another way.
  std::string text = "{", want = "{";
  for (int i = 0; i < 500; ++i) text += str(i == 0 ? "" : ",", "\"k", i % 400, "\":", i);
  for (int i = 0; i < 400; ++i) want += str(i == 0 ? "" : ",", "\"k", i, "\":", i < 100 ? i + 400 : i);
  CHECK(read_rows("d.jsonl", text + "}").rows.at(0).dump() == want + "}");
}

TEST_CASE("JSONL: what is refused, with file, line and column") {
  const std::string good = "{\"prompt\": \"a\"}\n";
  CHECK(contains(error("d.jsonl", good + "\n{\"prompt\": \"x\", }\n"), "d.jsonl:3:17: syntax error"));
  CHECK(contains(error("d.jsonl", good + "{\"prompt\": \"x\"\n"), "d.jsonl:2:15: syntax error"));
  CHECK(contains(error("d.jsonl", good + "{} {}\n"), "d.jsonl:2:4: "));
  CHECK(contains(error("d.jsonl", good + "[1]\n"), "d.jsonl:2:1: expected an object, found array"));
  CHECK(contains(error("d.jsonl", good + "\"x\"\n"), "d.jsonl:2:1: expected an object, found string"));
  CHECK(contains(error("d.jsonl", good + "null\n"), "d.jsonl:2:1: expected an object, found null"));
  CHECK(contains(error("d.jsonl", "[\n{}]"), "one JSON array"));
  CHECK(contains(error("d.jsonl", "{\n\"a\": 1}"), "jq -c ."));
  CHECK(contains(error("d.jsonl", good + R"({"n":1e999})"), "d.jsonl:2:10: number overflow"));
  CHECK(contains(error("d.jsonl", good + "{\"a\":\"\t\"}"), "d.jsonl:2:7: "));
  CHECK(contains(error("d.jsonl", "{\"a\":\"b\"}\r{\"a\":\"c\"}\r"), "d.jsonl:1:11: "));
}

TEST_CASE("surrogate pairs are joined; lone surrogates and invalid UTF-8 are malformed") {
  CHECK(read_rows("d.jsonl", R"({"a":"\ud83d\ude00"})").rows.at(0).at("a") == "\U0001F600");
  for (const char* bad : {R"("\ud800")", R"("\ud800x")", R"("\udc00")", R"("\ud800\ud800")", "\"\xFF\"", "\"\xC0\x80\"",
                          "\"\xED\xA0\x80\"", "\"\xE2\x82\"", "\"\xF4\x90\x80\x80\""}) {
    CAPTURE(bad);
    CHECK(contains(error("d.jsonl", str("{}\n{\"a\":", bad, "}\n")), "d.jsonl:2:"));
    CHECK(contains(error("d.json", str("[{},\n{\"a\":", bad, "}]\n")), "d.json:2:"));
  }
  CHECK(contains(error("d.jsonl", "{\"a\":\"\xFF\"}"), "iconv"));
}

TEST_CASE("carriage returns inside of strings are kept and counted, or become line feeds, at any depth") {
  const std::string row = R"({"a":"1\r\n2\r3\n","b":[{"c":"\r\r\n"}],"k\r":"\r"})";
  auto r = read_rows("d.jsonl", row);
  CHECK(r.notes.carriage_returns == 5);
  CHECK(r.rows.at(0).at("a") == "1\r\n2\r3\n");
  r = read_rows("d.json", "[" + row + "]", {.normalize_newlines = true});
  CHECK(r.notes.carriage_returns == 5);
  CHECK(r.rows.at(0).dump() == R"({"a":"1\n2\n3\n","b":[{"c":"\n\n"}],"k\r":"\n"})");
}

TEST_CASE("limits of depth and of a row's size") {
  const auto nested = [](size_t n) { return "{\"a\":" + std::string(n, '[') + std::string(n, ']') + "}"; };
  CHECK(error("d.jsonl", nested(63)).empty());
  CHECK(contains(error("d.jsonl", "{}\n" + nested(64)), "d.jsonl:2:69: nested deeper than 64 levels"));
  CHECK(contains(error("d.json", "[\n " + nested(64) + "]"), "d.json:2:70: nested deeper than 64 levels"));
  CHECK(contains(error("d.jsonl", std::string(1000000, '[')), "nested deeper"));
  CHECK(contains(error("d.json", "[{\"a\":" + std::string(1000000, '[')), "d.json:1:"));
  const ReaderOptions small{.limits = {.max_row_bytes = 20}};
  const std::string fits = "{\"a\":\"" + std::string(12, 'x') + "\"}";
  REQUIRE(fits.size() == 20);
  for (const size_t window : {size_t{1}, size_t{7}, RowInput::kBuffer}) {
    CAPTURE(window);
    CHECK(read_rows("d.jsonl", fits + "\n" + fits, small, window).rows.size() == 2);
    CHECK(contains(read_rows("d.jsonl", fits + "\n" + fits + "  \n", small, window).error,
                   "d.jsonl:2:1: line longer than 20 bytes"));
    CHECK(read_rows("d.json", "[" + std::string(100, ' ') + fits + "," + fits + "]", small, window).rows.size() == 2);
    CHECK(contains(read_rows("d.json", "[\n  {\"b\":" + fits + "}]", small, window).error,
                   "d.json:2:3: element longer than 20 bytes"));
  }
}

TEST_CASE("a row of very many keys takes time by its size, not by its square") {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 300000; ++i) text += str(",\"", i, "\":0");
  CHECK(read_rows("d.jsonl", text + "}").rows.at(0).size() == 300001);
}

TEST_CASE("a JSON array: elements with their lines and columns") {
  const auto r =
      read_rows("d.json", str(kBom, " \r\n[ {\"a\": \"],[\\\"\"},\n\n  {\n \"b\": [1, {}]\r\n}\n,{}\n]\n \n"));
  CHECK(r.error.empty());
  CHECK(r.format == "JSON array");
  REQUIRE(r.rows.size() == 3);
  CHECK(r.lines == std::vector<int64_t>{2, 4, 7});
  CHECK(r.rows[0].at("a") == "],[\"");
  CHECK(r.rows[1].dump() == R"({"b":[1,{}]})");
  CHECK(read_rows("d.json", "[]").rows.empty());
  CHECK(read_rows("d.json", "[]").error.empty());
  CHECK(read_rows("d.json", "[ \n ] ").error.empty());
}

TEST_CASE("a JSON array: what is refused, with line and column") {
  CHECK(contains(error("d.json", "[{}\n {}]"), "d.json:2:2: expected ',' or ']' after an element, found '{'"));
  CHECK(contains(error("d.json", "[{},,{}]"), "d.json:1:5: expected an object, found ','"));
  CHECK(contains(error("d.json", "[{}, ]"), "d.json:1:6: expected an element after ','"));
  CHECK(
      contains(error("d.json", "[{}"), "d.json:1:4: expected ',' or ']' after an element, found the end of the file"));
  CHECK(contains(error("d.json", "[{},\n"), "d.json:2:1: expected an object, found the end of the file"));
  CHECK(contains(error("d.json", "["), "found the end of the file"));
  CHECK(contains(error("d.json", "[{}]\n[{}]"), "d.json:2:1: expected the end of the file after the array, found '['"));
  CHECK(contains(error("d.json", "[{}]" + std::string(1, '\0')), "found '\\x00'"));
  CHECK(contains(error("d.json", "[1]"), "d.json:1:2: expected an object, found '1'"));
  CHECK(contains(error("d.json", "[\n\"x\"]"), "d.json:2:1: expected an object"));
  CHECK(contains(error("d.json", "[{\"a\":1},\n{\"a\":}]"), "d.json:2:6: syntax error"));
  CHECK(contains(error("d.json", "[{\"a\":1},\n{\"a\":\n 1]}]"), "d.json:3:3: syntax error"));
  CHECK(contains(error("d.json", "[{\"a\":1,\n"), "the file ends within the element that begins on line 1"));
  CHECK(read_rows("d.json", "[{},\n{\"a\":}]").rows.size() == 1);
}

TEST_CASE(".json: one object a line is fine, objects over several lines and one around the rows are not") {
  CHECK(read_rows("d.json", "{\"a\":1}\n{\"a\":2}\n").format == "JSONL");
  CHECK(read_rows("d.json", "{\"a\":1}\n{\"a\":2}\n").rows.size() == 2);
  CHECK(read_rows("d.json", "\n{\"messages\":[{\"role\":\"user\"}]}").rows.size() == 1);
  CHECK(contains(error("d.json", "{\"data\": [{\"a\":1}]}"), "jq -c '.data[]' 'd.json'"));
  CHECK(
      contains(error("d.json", "{\"version\": \"1\",\n \"data\": [\n{\"a\":1}]}"), "one object around rows in 'data'"));
  CHECK(contains(error("d.json", "{\"rows\":[{\"a\":\"" + std::string(100000, 'x') + "\"}]}"), "jq -c '.rows[]'"));
  CHECK(contains(error("d.json", "{\n  \"a\": 1\n}\n"), "d.json:1: an object over several lines"));
  CHECK(contains(error("d.json", "{\n  \"a\": 1\n}\n{\n  \"a\": 2\n}"), "jq -c . 'd.json'"));
  CHECK(contains(error("d.json", "\"a\""), "expected '[' or '{', found '\"'"));
  // Not an object around rows: a field of that name, in one of several rows.
  CHECK(read_rows("d.json", "{\"data\":[{\"a\":1}]}\n{\"data\":[]}\n").rows.size() == 2);
  CHECK(read_rows("d.json", "{\"x\":{\"data\":[{\"a\":1}]},\"data\":\"text\"}").rows.size() == 1);
  CHECK(contains(error("d.json", "{\"a\":1}\n{\n\"a\":2}"), "jq -c ."));
}

TEST_CASE("JSON rows are the same wherever the reads are cut") {
  RandomText random(5);
  std::string lines, array = "[";
  for (int i = 0; i < 40; ++i) {
    ordered_json row;
    row["text"] = random.utf8(random.next() % 12) + "\\\"[{\r\n";
    row["n"] = {i, ordered_json{{"]", "}"}}, "\\"};
    const std::string text = i % 3 == 0 ? row.dump(1) : row.dump(-1, ' ', i % 2 == 0);
    array += (i == 0 ? "\n" : ",") + text + (i % 4 == 0 ? "\r\n" : " ");
    lines += row.dump() + (i % 4 == 0 ? "\r\n\n" : "\n");
  }
  array += "]\n";
  const auto whole_lines = read_rows("d.jsonl", lines), whole_array = read_rows("d.json", array);
  REQUIRE(whole_lines.rows.size() == 40);
  REQUIRE(whole_array.rows.size() == 40);
  CHECK(whole_lines.rows == whole_array.rows);
  for (size_t window = 1; window < 70; ++window) {
    CAPTURE(window);
    CHECK(read_rows("d.jsonl", lines, {}, window, window % 9 + 1) == whole_lines);
    CHECK(read_rows("d.json", array, {}, window, window % 9 + 1) == whole_array);
  }
}

TEST_CASE("an array that is cut anywhere gives whole rows and then an error") {
  const std::string whole = "[{\"a\":\"x\\\"\"},\n {\"b\":[1,2]} ,{\"c\":{}}\n]";
  const auto all = read_rows("d.json", whole);
  REQUIRE(all.error.empty());
  for (size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    const auto r = read_rows("d.json", whole.substr(0, n), {}, 1 + n % 5);
    CHECK(!r.error.empty());
    REQUIRE(r.rows.size() <= 3);
    for (size_t i = 0; i < r.rows.size(); ++i) CHECK(r.rows[i] == all.rows[i]);
  }
}

TEST_CASE("after an error the reader stays where it is; a malformed row does not end the reading") {
  auto reader = open_rows(std::make_unique<MemorySource>("[{},7]"), "d.json", {});
  RawRow row;
  REQUIRE(reader->next(row));
  const auto first = error_of([&] { reader->next(row); }, ErrorCode::data);
  CHECK(contains(first, "d.json:1:5:"));
  CHECK(error_of([&] { reader->next(row); }, ErrorCode::data) == first);
  reader = open_rows(std::make_unique<MemorySource>("{}\n{\n{\"a\":1}\n"), "d.jsonl", {});
  RowNotes notes;
  REQUIRE(reader->next(row));
  REQUIRE(reader->next(row));
  CHECK(contains(error_of([&] { reader->parse(row, notes); }, ErrorCode::data), "d.jsonl:2:"));
  REQUIRE(reader->next(row));
  CHECK(reader->parse(row, notes).at("a") == 1);
  CHECK_FALSE(reader->next(row));
  CHECK_FALSE(reader->next(row));
}
