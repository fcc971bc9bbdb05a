// SPDX-License-Identifier: Apache-2.0
// Rows of CSV and of plain text.
#include <doctest/doctest.h>

#include "rows_testing.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

constexpr const char* kBom = "\xEF\xBB\xBF";

std::string error(const std::string& name, const std::string& bytes, const ReaderOptions& options = {}) {
  return read_rows(name, bytes, options).error;
}
std::vector<std::string> texts(const std::string& bytes, const ReaderOptions& options) {
  std::vector<std::string> out;
  for (const auto& row : read_rows("d.txt", bytes, options).rows) {
    CHECK(row.size() == 1);
    out.push_back(row.at("text").get<std::string>());
  }
  return out;
}

}  // namespace

TEST_CASE("CSV: quotes, quoted line ends, doubled quotes, empty fields; lines are physical") {
  const auto r = read_rows("d.csv", str(kBom,
                                        "name,\"the text\",n\r\n"
                                        "a,\"x, \"\"y\"\"\r\nz\",1\r\n"
                                        "\r\n"
                                        ",,\n"
                                        "\"\",\"\n\",\" 3 \"\n"
                                        "b \"quoted\" b,don't,'4'"));
  CHECK(r.error.empty());
  CHECK(r.format == "CSV");
  REQUIRE(r.rows.size() == 4);
  CHECK(r.lines == std::vector<int64_t>{2, 5, 6, 8});
  CHECK(r.rows[0].dump() == R"({"name":"a","the text":"x, \"y\"\r\nz","n":"1"})");
  CHECK(r.rows[1].dump() == R"({"name":"","the text":"","n":""})");
  CHECK(r.rows[2].dump() == R"({"name":"","the text":"\n","n":" 3 "})");
  CHECK(r.rows[3].dump() == R"({"name":"b \"quoted\" b","the text":"don't","n":"'4'"})");
  CHECK(r.notes.carriage_returns == 1);
  CHECK(read_rows("d.csv", "a,b\n\"1\r\n2\",\"3\r4\"\n", {.normalize_newlines = true}).rows.at(0).dump() ==
        R"({"a":"1\n2","b":"3\n4"})");
  CHECK(read_rows("d.csv", "a\n").rows.empty());
  CHECK(read_rows("d.csv", "a\nx").rows.size() == 1);
}

TEST_CASE("CSV: delimiters by name and header") {
  const auto tabs = read_rows("d.tsv", "a\tb\n1,2\t\"3\t4\"\n\t\n");
  CHECK(tabs.format == "TSV");
  REQUIRE(tabs.rows.size() == 2);
  CHECK(tabs.rows[0].dump() == R"({"a":"1,2","b":"3\t4"})");
  CHECK(tabs.rows[1].dump() == R"({"a":"","b":""})");
  const auto semicolons = read_rows("d.csv", "a;\"b,c\"\n1,5;\"2;3\"\n");
  CHECK(semicolons.format == "CSV with semicolons");
  CHECK(semicolons.rows.at(0).dump() == R"({"a":"1,5","b,c":"2;3"})");
  CHECK(read_rows("d.csv", "a;x,b\n1,2\n").rows.at(0).dump() == R"({"a;x":"1","b":"2"})");
  CHECK(contains(error("d.csv", "a\tb\n1\t2\n"), "name the file .tsv"));
}

TEST_CASE("CSV: what is refused, with line and column") {
  CHECK(contains(error("d.csv", "a,b\n1,2\n\n1\n"), "d.csv:4:1: 1 field, the header names 2 (a, b)"));
  CHECK(contains(error("d.csv", "a,b\n1,\"2\n\",3\n"), "d.csv:2:1: 3 fields, the header names 2"));
  CHECK(contains(error("d.csv", "a,b\n1,\"2\"x\n"), "d.csv:2:6: 'x' after the closing quote"));
  CHECK(contains(error("d.csv", "a,b\n1,\"2\n\" x\n"), "d.csv:3:2: ' ' after the closing quote"));
  CHECK(contains(error("d.csv", "a,b\n1,2\n1,\"2\n3,4\n"), "d.csv:3:3: the quote that opens here is not closed"));
  CHECK(contains(error("d.csv", "a,b,a\n"), "d.csv:1:1: the header names 'a' twice"));
  CHECK(contains(error("d.csv", ",b\n0,1\n"), "d.csv:1:1: column 1 of the header has no name"));
  CHECK(contains(error("d.csv", "a,b,\n"), "column 3"));
  CHECK(contains(error("d.csv", "a,b\r1,2\r"), "tr '\\r' '\\n'"));
  CHECK(contains(error("d.csv", "\n \r\n"), "no header"));
  CHECK(contains(error("d.csv", "a,b\n1,x\xE9\n"), "d.csv:2:4: not UTF-8 (\\xe9)"));
  CHECK(contains(error("d.csv", "a\xFF\n"), "d.csv:1:2: not UTF-8"));
  const ReaderOptions small{.limits = {.max_row_bytes = 10}};
  CHECK(error("d.csv", "a,b\n12345,789\n", small).empty());
  CHECK(contains(error("d.csv", "a,b\n1,2\n12345,7890\n", small), "d.csv:3:1: row longer than 10 bytes"));
  CHECK(contains(error("d.csv", "a,b\n1,\"2\n345\n6789\n", small), "is the quote closed that opens at d.csv:2:3?"));
}

TEST_CASE("CSV rows are the same wherever the reads are cut") {
  RandomText random(9);
  std::string bytes = "a,b,c\r\n";
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 3; ++k) {
      std::string field = random.utf8(random.next() % 6) + (random.next() % 3 == 0 ? "\r\n\"," : "");
      const bool quoted = field.find_first_of(",\"\r\n") != std::string::npos || random.next() % 2 == 0;
      for (size_t at = 0; quoted && (at = field.find('"', at)) != std::string::npos; at += 2) field.insert(at, 1, '"');
      bytes += (k == 0 ? "" : ",") + (quoted ? "\"" + field + "\"" : field);
    }
    bytes += i % 2 == 0 ? "\n" : "\r\n";
  }
  const auto whole = read_rows("d.csv", bytes);
  CHECK(whole.error.empty());
  REQUIRE(whole.rows.size() == 60);
  for (size_t window = 1; window < 50; ++window) {
    CAPTURE(window);
    CHECK(read_rows("d.csv", bytes, {}, window, window % 7 + 1) == whole);
  }
}

TEST_CASE("text: the document, its paragraphs, its lines") {
  const std::string bytes = str(kBom, "\r\none\r\n two \n \t\r\n\n\nthree\n\nfour\rfive");
  const auto document = read_rows("d.txt", bytes);
  CHECK(document.format == "text");
  REQUIRE(document.rows.size() == 1);
  CHECK(document.lines[0] == 1);
  // A carriage return before a line end is part of the line end, another one is counted.
  CHECK(document.rows[0].at("text") == "\none\n two \n \t\n\n\nthree\n\nfour\rfive");
  CHECK(document.notes.carriage_returns == 1);
  CHECK(texts(bytes, {.sample_by = SampleBy::paragraph}) ==
        std::vector<std::string>{"one\n two ", "three", "four\rfive"});
  CHECK(read_rows("d.md", bytes, {.sample_by = SampleBy::paragraph}).lines == std::vector<int64_t>{2, 7, 9});
  CHECK(texts(bytes, {.sample_by = SampleBy::line}) == std::vector<std::string>{"one", " two ", "three", "four\rfive"});
  CHECK(read_rows("d.txt", bytes, {.sample_by = SampleBy::line}).lines == std::vector<int64_t>{2, 3, 7, 9});
  CHECK(texts("a\rb\r\n", {.sample_by = SampleBy::line, .normalize_newlines = true}) ==
        std::vector<std::string>{"a\nb"});
  for (const auto by : {SampleBy::document, SampleBy::paragraph, SampleBy::line}) {
    CHECK(texts("\n \r\n\t", {.sample_by = by}).empty());
    const auto whole = read_rows("d.txt", bytes, {.sample_by = by});
    for (size_t window = 1; window < 20; ++window) CHECK(read_rows("d.txt", bytes, {.sample_by = by}, window) == whole);
  }
}

TEST_CASE("text: limits and bytes that are not UTF-8") {
  const auto limited = [](SampleBy by) { return ReaderOptions{.limits = {.max_row_bytes = 8}, .sample_by = by}; };
  CHECK(error("d.txt", "12345678", limited(SampleBy::document)).empty());
  auto e = error("d.txt", "123456789", limited(SampleBy::document));
  CHECK(contains(e, "d.txt:1:1: the document is longer than 8 bytes"));
  CHECK(contains(e, "sample_by: paragraph, or line"));
  CHECK(error("d.txt", "123\n5678\n\n12345678\n\n", limited(SampleBy::paragraph)).empty());
  e = error("d.txt", "\n1\n\n123\n56789\n", limited(SampleBy::paragraph));
  CHECK(contains(e, "d.txt:4:1: the paragraph is longer than 8 bytes"));
  CHECK(contains(e, "sample_by: line"));
  CHECK(contains(error("d.txt", "1\n123456789", limited(SampleBy::line)), "d.txt:2:1: the line is longer than 8"));
  CHECK(contains(error("d.txt", "good\nbad \xC3\n"), "d.txt:2:5: not UTF-8 (\\xc3)"));
}
