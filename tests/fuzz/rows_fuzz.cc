// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of rows: rows or an Error(data), the same ones wherever the reads are cut, never a crash. With
// clang this is a libFuzzer target (seeds: the files that `bantam_rows_fuzz --seeds DIR` of another build writes);
// otherwise a program of its own that damages small files of each kind: bantam_rows_fuzz [ROUNDS] [SEED].
// The first byte chooses the file's name, the second the options and where the reads are cut.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "finetune/rows_testing.h"

namespace {

using namespace bantam;
using nlohmann::ordered_json;

const char* const kNames[] = {"d.jsonl", "d.json", "d.csv", "d.tsv", "d.txt", "d.json.gz", "d.jsonl.zst", "d"};
constexpr size_t kMostRow = 4096;

struct Cut {
  std::vector<RawRow> rows;
  std::string format, error;
  std::unique_ptr<RowReader> reader;
};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

Cut cut(const std::string& name, const std::string& bytes, const ReaderOptions& options, size_t window, size_t piece) {
  Cut out;
  try {
    out.reader = open_rows(std::make_unique<testing::MemorySource>(bytes, piece), name, options, window);
    out.format = out.reader->format();
    RawRow row;
    while (out.reader->next(row)) out.rows.push_back(row);
  } catch (const Error& e) {
    require(e.code() == ErrorCode::data, "not an error of the data");
    out.error = e.what();
    require(!out.error.empty() && out.error.find('\n') == std::string::npos, "not one line");
  }
  return out;
}

// nlohmann's own opinion, where its tree is safe to build.
bool plain_json(const std::string& text, ordered_json& row) {
  row = ordered_json::parse(text, nullptr, false);
  return row.is_object();
}

int try_file(std::string_view input) {
  if (input.size() < 2) return 0;
  const auto choice = static_cast<uint8_t>(input[0]), how = static_cast<uint8_t>(input[1]);
  const std::string name = kNames[choice % std::size(kNames)], bytes(input.substr(2));
  const ReaderOptions options{.limits = {.max_row_bytes = kMostRow, .max_depth = 16},
                              .sample_by = static_cast<SampleBy>(how % 3),
                              .normalize_newlines = (how & 4) != 0};
  const Cut whole = cut(name, bytes, options, RowInput::kBuffer, SIZE_MAX);
  const Cut small = cut(name, bytes, options, 1 + (how >> 3), 1 + (choice >> 3));
  require(whole.format == small.format && whole.error == small.error && whole.rows.size() == small.rows.size(),
          "the cuts of the reads show");
  int64_t last = 0;
  for (size_t i = 0; i < whole.rows.size(); ++i) {
    const RawRow& row = whole.rows[i];
    require(row.text == small.rows[i].text && row.line == small.rows[i].line && row.column == small.rows[i].column,
            "the cuts of the reads show in a row");
    require(row.text.size() <= kMostRow && row.line >= std::max<int64_t>(last, 1), "a row's size or line");
    last = row.line;
    RowNotes notes;
    ordered_json parsed, plain;
    try {
      parsed = whole.reader->parse(row, notes);
      require(parsed.is_object() && notes.carriage_returns >= 0, "a row that is no object");
    } catch (const Error& e) {
      require(e.code() == ErrorCode::data && std::string(e.what()).starts_with(name + ":"), "an error without place");
    }
    if (whole.format.starts_with("JSON") && plain_json(row.text, plain)) {
      const bool deep = parsed.is_null();
      require(!deep || row.text.size() > 16, "a row that others read");
      if (!deep && !options.normalize_newlines) require(parsed.dump() == plain.dump(), "a row that others read so");
    } else if (whole.format.starts_with("JSON")) {
      require(parsed.is_null(), "a row that others do not read");
    }
  }
  return whole.error.empty() ? 1 : 0;
}

}  // namespace

#ifdef BANTAM_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
#else

namespace {

// Each starts with its two choosing bytes.
std::vector<std::string> seeds() {
  const std::string lines =
      "\xEF\xBB\xBF{\"messages\":[{\"role\":\"user\",\"content\":\"a \\u00e9\\ud83d\\ude00 \\\"b\\\"\\r\\n\"}]}\r\n\n "
      "\t\n"
      "{\"a\":-1.5e3,\"b\":[true,false,null,{}],\"a\":\"\xC3\xA9\"}\n{\"z\":18446744073709551615}";
  const std::string array = "[\n  {\"a\": \"]}\\\\\\\"\",\n \"b\": [1, {\"c\": \"\"}]},\r\n{} , {\"d\":\"\r\"}\n]\n";
  const std::string csv = "a,\"b b\",c\r\n1,\"x, \"\"y\"\"\r\nz\",3\n\n,,\n\"\",don't,\"\n\"";
  const std::string tsv = "a\tb\n1\t\"2\t3\"\n";
  const std::string text = "one\r\ntwo\n \t\n\nthree \xE2\x82\xAC\rfour\n";
  const auto with = [](size_t name, int how, const std::string& bytes) {
    return std::string{static_cast<char>(name), static_cast<char>(how)} + bytes;
  };
  std::vector<std::string> out = {with(0, 8, lines),
                                  with(8, 4, lines),
                                  with(1, 16, lines),
                                  with(1, 0, array),
                                  with(17, 28, array),
                                  with(1, 0, "{\"data\": [{\"a\": 1}]}"),
                                  with(1, 0, "{\n \"a\": 1\n}\n"),
                                  with(2, 0, csv),
                                  with(2, 40, "a;b\n1,5;\"2;3\"\n"),
                                  with(3, 12, tsv),
                                  with(4, 0, text),
                                  with(4, 17, text),
                                  with(4, 26, text),
                                  with(5, 8, testing::gzipped(array)),
                                  with(40, 80, testing::gzipped(lines) + testing::gzipped("\n{}")),
                                  with(6, 8, testing::zstded(lines)),
                                  with(30, 80, testing::zstded(lines) + testing::zstded("\n{}")),
                                  with(7, 0, lines)};
  return out;
}

std::string damaged(std::string s, const std::vector<std::string>& all, std::mt19937& random) {
  static const char* const kPieces[] = {"\"",
                                        "\\",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ";",
                                        ":",
                                        "\n",
                                        "\r",
                                        "\r\n",
                                        "\n\n",
                                        "\t",
                                        " ",
                                        "\"\"",
                                        "{}",
                                        "[{}",
                                        "\\u",
                                        "\\ud800",
                                        "\xFF",
                                        "\xC3",
                                        "\xEF\xBB\xBF",
                                        "1e999",
                                        "null",
                                        "\x1f\x8b",
                                        "\x28\xb5\x2f\xfd",
                                        "\"data\":[{",
                                        "[[[[[[[[[[[[[[[[["};
  for (unsigned k = 0; k <= random() % 4; ++k) {
    const size_t at = random() % (s.size() + 1);
    const std::string& other = all[random() % all.size()];
    switch (random() % 6) {
      case 0:
        if (at < s.size()) s[at] = static_cast<char>(random());
        break;
      case 1:
        s.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 2:
        s.erase(at, random() % 9);
        break;
      case 3:
        s.insert(at, s.substr(random() % (s.size() + 1), random() % 60));
        break;
      case 4:
        s.insert(at, other.substr(random() % (other.size() + 1), random() % 60));
        break;
      default:
        if (random() % 4 == 0) s.resize(at);
        if (random() % 30 == 0) s.insert(at, std::string(random() % (2 * kMostRow), 'x'));
    }
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> files = seeds();
  if (argc > 2 && std::string(argv[1]) == "--seeds") {
    std::filesystem::create_directories(argv[2]);
    for (size_t i = 0; i < files.size(); ++i) testing::write_file(std::filesystem::path(argv[2]) / str(i), files[i]);
    return 0;
  }
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10000;
  std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1u);
  for (const auto& s : files) try_file(s);
  int read = 0;
  for (int round = 0; round < rounds; ++round) read += try_file(damaged(files[random() % files.size()], files, random));
  std::printf("%d of %d damaged files were still read to their end\n", read, rounds);
  return read > rounds / 50 && read < rounds ? 0 : 1;
}
#endif
