// SPDX-License-Identifier: Apache-2.0
// Archives, files that only look like data, and which files a path stands for.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <random>
#include <thread>

#include "rows_testing.h"

using namespace bantam;
using namespace bantam::testing;

namespace {

std::string error(const std::string& name, const std::string& bytes) {
  return read_rows(name, bytes).error;
}

// n rows of which no two are alike, so that they do not vanish in an archive.
std::string lines(size_t n) {
  std::string out;
  std::mt19937_64 random(n);
  for (size_t i = 0; i < n; ++i) out += str("{\"id\":", i, ",\"text\":\"", random(), " ", random(), "\"}\n");
  return out;
}

}  // namespace

TEST_CASE("the same rows from every container") {
  const std::string lf = "{\"a\":\"1\",\"b\":\"x \\\"y\\\"\"}\n{\"a\":\"2\",\"b\":\"\\u00e9\\n\"}\n";
  const auto plain = read_rows("d.jsonl", lf);
  REQUIRE(plain.rows.size() == 2);
  const std::string array = "[{\"a\":\"1\",\"b\":\"x \\\"y\\\"\"},\n{\"a\":\"2\",\"b\":\"\\u00e9\\n\"}]";
  const std::string csv = "a,b\n1,\"x \"\"y\"\"\"\n2,\"\xC3\xA9\n\"\n";
  CHECK(read_rows("d.json", array).rows == plain.rows);
  CHECK(read_rows("d.csv", csv).rows == plain.rows);
  const auto gzip = read_rows("d.jsonl.gz", gzipped(lf)), zstd = read_rows("d.jsonl.zst", zstded(lf));
  CHECK(gzip == plain);
  CHECK(gzip.format == "JSONL, gzip");
  CHECK(zstd == plain);
  CHECK(zstd.format == "JSONL, zstd");
  CHECK(read_rows("d.json.GZ", gzipped(array)).format == "JSON array, gzip");
  CHECK(read_rows("d.csv.zst", zstded(csv)).format == "CSV, zstd");
  CHECK(read_rows("d.txt.gz", gzipped("text")).format == "text, gzip");
  // The bytes decide, not the name.
  CHECK(read_rows("d.jsonl", gzipped(lf)) == plain);
  CHECK(read_rows("d.jsonl.gz", zstded(lf)) == plain);
  CHECK(read_rows("d.jsonl.gz", lf) == plain);
}

TEST_CASE("archives of several parts, in pieces of any size") {
  const std::string a = lines(50), b = "{\"id\":0}", c = "\n" + lines(30);
  const auto want = read_rows("d.jsonl", a + b + c);
  REQUIRE(want.rows.size() == 81);
  const std::string gzip = gzipped(a) + gzipped("") + gzipped(b, 0) + gzipped(c) + std::string(600, '\0');
  const std::string skip("\x50\x2a\x4d\x18\x03\0\0\0abc", 11);
  const std::string zstd = skip + zstded(a) + zstded("") + zstded(b) + skip + zstded(c, 19);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{17}, size_t{1000}, SIZE_MAX}) {
    CAPTURE(piece);
    CHECK(read_rows("d.jsonl.gz", gzip, {}, 13, piece) == want);
    CHECK(read_rows("d.jsonl.zst", zstd, {}, 13, piece) == want);
  }
}

TEST_CASE("an archive that is cut anywhere gives whole rows and then one clear error") {
  const std::string text = lines(40);
  const auto all = read_rows("d.jsonl", text);
  for (const bool gzip : {true, false}) {
    const std::string whole = gzip ? gzipped(text) : zstded(text);
    const std::string name = gzip ? "d.jsonl.gz" : "d.jsonl.zst";
    for (size_t n = 4; n < whole.size(); ++n) {
      CAPTURE(n);
      const auto r = read_rows(name, whole.substr(0, n));
      CHECK(contains(r.error, str(name, ":", r.rows.size() + 1, ":")));
      CHECK(contains(r.error, "cut short"));
      REQUIRE(r.rows.size() <= all.rows.size());
      for (size_t i = 0; i < r.rows.size(); ++i) CHECK(r.rows[i] == all.rows[i]);
    }
  }
}

TEST_CASE("a damaged archive is an error wherever the damage is") {
  const std::string text = lines(40);
  for (const bool gzip : {true, false}) {
    const std::string whole = gzip ? gzipped(text) : zstded(text);
    size_t found = 0;
    for (size_t n = 4; n < whole.size(); ++n) {
      std::string bytes = whole;
      bytes[n] = static_cast<char>(bytes[n] ^ 0x41);
      const auto r = read_rows(gzip ? "d.jsonl.gz" : "d.jsonl.zst", bytes);
      if (r.error.empty()) {
        CHECK(r.rows.size() == 40);  // a byte that says nothing about the content: time, system
      } else {
        ++found;
      }
    }
    CHECK(found >= whole.size() - 12);
  }
  CHECK(contains(error("d.jsonl.gz", gzipped("{}\n{}\n") + "x"), "d.jsonl.gz:3:1: something that is not gzip"));
  CHECK(contains(error("d.jsonl.gz", gzipped("{}\n") + std::string(3, '\0') + "x"), "something that is not gzip"));
  CHECK(contains(error("d.jsonl.zst", zstded("{}\n") + "garbage"), "d.jsonl.zst:2:1: something that is not zstd"));
  CHECK(contains(error("d.jsonl.gz", "\x1f\x8b garbage"), "d.jsonl.gz:1:1: the gzip data is damaged"));
  CHECK(contains(error("d.jsonl.gz", gzipped(gzipped("{}"))), "packed twice"));
  CHECK(contains(error("d.jsonl.gz", gzipped("")), "empty"));
}

TEST_CASE("an archive of one endless row takes no more memory than a row may") {
  const ReaderOptions options{.limits = {.max_row_bytes = 1 << 20}};
  const std::string row = "{\"text\":\"" + std::string(50 << 20, 'x');
  for (const auto& [name, bytes] : {std::pair{"d.jsonl.gz", gzipped(row)}, std::pair{"d.jsonl.zst", zstded(row)},
                                    std::pair{"d.json.gz", gzipped("[" + row)}, std::pair{"d.txt.zst", zstded(row)},
                                    std::pair{"d.csv.gz", gzipped("a,b\n\"" + row)}}) {
    CAPTURE(name);
    CHECK(contains(read_rows(name, bytes, options).error, "longer than 1048576 bytes"));
  }
}

TEST_CASE("memory stays bounded over a long file") {
  TempDir dir;
  {
    std::ofstream out(dir / "d.jsonl", std::ios::binary);
    const std::string tail = ",\"text\":\"" + std::string(1000, 'x') + "\"}\n";
    for (int i = 0; i < 100000; ++i) out << "{\"id\":" << i << tail;
  }
  const auto reader = open_rows(dir / "d.jsonl");
  const auto peak = [] {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;  // KiB
  };
  RawRow row;
  RowNotes notes;
  REQUIRE(reader->next(row));
  const auto before = peak();
  int64_t n = 1, line = 0;
  for (; reader->next(row); ++n) {
    line = row.line;
    CHECK_UNARY(reader->parse(row, notes).at("id") == n);
  }
  CHECK(n == 100000);
  CHECK(line == 100000);
  CHECK(peak() - before < 8 << 10);  // of 98 MiB
}

TEST_CASE("rows are parsed by several threads at once") {
  const std::string text = lines(400);
  const auto want = read_rows("d.jsonl", text);
  const auto reader = open_rows(std::make_unique<MemorySource>(text), "d.jsonl", {});
  std::vector<RawRow> raw_rows(400);
  for (auto& row : raw_rows) REQUIRE(reader->next(row));
  std::vector<nlohmann::ordered_json> got(400);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      RowNotes notes;
      for (size_t i = t; i < 400; i += 4) got[i] = reader->parse(raw_rows[i], notes);
    });
  }
  for (auto& t : threads) t.join();
  CHECK(got == want.rows);
}

TEST_CASE("what only looks like data is refused, with what to do") {
  CHECK(contains(error("x.parquet", "PAR1...."),
                 "python -c \"import pandas as pd; pd.read_parquet('x.parquet').to_json('x.jsonl', orient='records', "
                 "lines=True)\""));
  CHECK(contains(error("it's.jsonl", "PAR1"), "pd.read_parquet('FILE').to_json('FILE.jsonl'"));
  CHECK(contains(error("x.arrow", "ARROW1\0\0"), "pd.read_feather('x.arrow')"));
  CHECK(contains(error("x.arrow", "\xff\xff\xff\xff\x10\x02"), "Dataset.from_file('x.arrow').to_json('x.jsonl')"));
  CHECK(contains(error("x.jsonl", "version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"));
  CHECK(contains(error("x.parquet", "version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"));
  for (const char* name : {"x.jsonl", "x.json", "x.csv", "x.txt"}) {
    CAPTURE(name);
    CHECK(contains(error(name, "\n<!DOCTYPE html><html>"), "web page"));
    CHECK(contains(error(name, std::string("\xff\xfe{\0", 4)), "UTF-16"));
    CHECK(contains(error(name, std::string("{\0\"\0a\0", 6)), "iconv -f UTF-16"));
    CHECK(contains(error(name, ""), "empty"));
    CHECK(contains(error(name, "\xEF\xBB\xBF"), "empty"));
  }
  CHECK(contains(error("x.json", "<?xml version='1.0'?>"), "web page"));
  CHECK(read_rows("x.txt", "<s> is a token").rows.size() == 1);
  CHECK(contains(error("x.xlsx", "PK\x03\x04"), "pd.read_excel('x.xlsx')"));
  CHECK(contains(error("x.zip", "PK\x03\x04"), "unzip"));
  CHECK(contains(error("x.db", std::string("SQLite format 3\0", 16)), "sqlite3 -json 'x.db'"));
  CHECK(contains(error("x.jsonl.bz2", "BZh91AY"), "bunzip2"));
  CHECK(contains(error("x.jsonl.xz", std::string("\xfd\x37zXZ\0", 6)), "unxz"));
  CHECK(contains(error("x.tar.gz", gzipped(std::string(257, 'x') + "ustar" + std::string(300, ' '))), "tar archive"));
  for (const char* name : {"x", "x.gz", "x.yaml", "train"}) {
    CAPTURE(name);
    CHECK(contains(error(name, "{}"), ".jsonl, .ndjson, .json, .csv, .tsv, .txt, .md"));
  }
}

TEST_CASE("files that cannot be opened") {
  TempDir dir;
  const auto open = [](const std::filesystem::path& p) { return error_of([&] { open_rows(p); }, ErrorCode::data); };
  CHECK(contains(open(dir / "no.jsonl"), "no such file"));
  CHECK(contains(open(dir.path()), "is a folder"));
  std::filesystem::create_symlink("gone.jsonl", dir / "link.jsonl");
  CHECK(contains(open(dir / "link.jsonl"), "a link to gone.jsonl, which does not exist"));
}

namespace {

class Folder {
 public:
  Folder() {
    for (const char* f :
         {"b.jsonl", "a.jsonl", "c.json.gz", "B.csv", "README.md", "dataset_info.json", ".hidden.jsonl", "x.parquet",
          "sub/d.jsonl", "sub/deep/e.jsonl", "sub/.git/f.jsonl", "other/a1.txt", "other/a2.txt", "other/a3.txt",
          "other/aé.txt", "star/a*b.jsonl", "none/x.parquet", "docs/README.md", "other/[v2]/g.csv"}) {
      std::filesystem::create_directories((dir_ / f).parent_path());
      write_file(dir_ / f, "{}\n");
    }
  }
  std::string operator()(const std::string& path) const {
    std::string out;
    for (const auto& f : data_files((dir_.path() / path).string())) {
      out += (out.empty() ? "" : " ") + f.lexically_relative(dir_.path()).string();
    }
    return out;
  }
  std::string error(const std::string& path) const {
    return error_of([&] { (*this)(path); }, ErrorCode::data);
  }
  const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

}  // namespace

TEST_CASE("a path of a dataset: a file, a folder, a pattern") {
  const Folder files;
  CHECK(files("a.jsonl") == "a.jsonl");
  CHECK(files("x.parquet") == "x.parquet");  // open_rows() says what to do about it
  CHECK(files("") == "B.csv a.jsonl b.jsonl c.json.gz");
  CHECK(files("sub") == "sub/d.jsonl");
  CHECK(files("*.jsonl") == "a.jsonl b.jsonl");
  CHECK(files(".*.jsonl") == ".hidden.jsonl");
  CHECK(files("?.js*") == "a.jsonl b.jsonl c.json.gz");
  CHECK(files("[a-b].jsonl") == "a.jsonl b.jsonl");
  CHECK(files("[!a].jsonl") == "b.jsonl");
  CHECK(files("**/*.jsonl") == "a.jsonl b.jsonl star/a*b.jsonl sub/d.jsonl sub/deep/e.jsonl");
  CHECK(files("**/**/e.jsonl") == "sub/deep/e.jsonl");
  CHECK(files("sub/**") == "sub/d.jsonl sub/deep/e.jsonl");
  CHECK(files("**/deep/*") == "sub/deep/e.jsonl");
  CHECK(files("o*r/a[12].txt") == "other/a1.txt other/a2.txt");
  CHECK(files("s*/../other/a1*") == "star/../other/a1.txt sub/../other/a1.txt");
  CHECK(files("star/a*b.jsonl") == "star/a*b.jsonl");  // a file of that very name
  CHECK(files("star/a[*]b.jsonl") == "star/a*b.jsonl");
  CHECK(files("other/[v2]/*.csv") == "other/[v2]/g.csv");
}

TEST_CASE("a path of a dataset: what is said when there is nothing") {
  const Folder files;
  CHECK(contains(files.error("a.json"), "did you mean"));
  CHECK(contains(files.error("a.json"), "a.jsonl?"));
  CHECK(contains(files.error("sbu/d.jsonl"), "/sub?"));
  CHECK(contains(files.error("something/else.jsonl"), "B.csv, README.md, a.jsonl"));
  CHECK(contains(files.error("sub/*.csv"), "holds d.jsonl, deep/"));
  CHECK(contains(files.error("sub/*.csv"), "no file matches this pattern"));
  CHECK(contains(files.error("none"), "none/x.parquet: a Parquet file"));
  CHECK(contains(files.error("sub/deep/**/*.txt"), "no file matches"));
  CHECK(contains(files.error("docs"), "no data file in this folder (README.md)"));
  std::filesystem::create_directory(files.path() / "empty");
  CHECK(contains(files.error("empty"), "it is empty"));
  CHECK(contains(error_of([] { data_files(""); }, ErrorCode::data), "empty"));
  // A link to nothing is named, not left out.
  std::filesystem::create_symlink("gone", files.path() / "empty" / "l.jsonl");
  CHECK(files("empty") == "empty/l.jsonl");
  CHECK(files("empty/*") == "empty/l.jsonl");
  // Links in circles end.
  std::filesystem::create_directory_symlink("..", files.path() / "sub" / "up");
  CHECK(files("sub/**/*.jsonl") == "sub/d.jsonl sub/deep/e.jsonl");
}

TEST_CASE("paths are relative to the current directory as they are written") {
  const Folder files;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(files.path());
  const auto names = [](const std::string& path) {
    std::string out;
    for (const auto& f : data_files(path)) out += f.string() + " ";
    return out;
  };
  CHECK(names("*.jsonl") == "a.jsonl b.jsonl ");
  CHECK(names("./sub/*.jsonl") == "./sub/d.jsonl ");
  CHECK(names("**/e.jsonl") == "sub/deep/e.jsonl ");
  CHECK(contains(error_of([&] { names("c.jsonl"); }, ErrorCode::data), "did you mean"));
  std::filesystem::current_path(here);
}

TEST_CASE("real files") {
  const auto root = std::filesystem::path(BANTAM_SHARED_DATA) / "datasets";
  if (!std::filesystem::exists(root)) return;
  const std::pair<std::string, size_t> kFiles[] = {{"axolotl_fixtures/alpaca.json", 2},
                                                   {"axolotl_fixtures/conversation.tokenized.json", 1},
                                                   {"axolotl_fixtures/conversation.tokenized_llama2chat.json", 1},
                                                   {"botchan.txt", 1},
                                                   {"email_style/email_dataset.jsonl", 200},
                                                   {"gsm8k/test.jsonl", 1319},
                                                   {"gsm8k/train.jsonl", 7473},
                                                   {"humaneval/HumanEval.jsonl.gz", 164},
                                                   {"llamafactory/c4_demo.jsonl", 300},
                                                   {"llamafactory/glaive_toolcall_en_demo.json", 300},
                                                   {"llamafactory/identity.json", 91},
                                                   {"llamafactory/kto_en_demo.json", 300},
                                                   {"llamafactory/reason_tool_use_demo_50.jsonl", 50},
                                                   {"llamafactory/v1_sft_demo.jsonl", 500},
                                                   {"mlx_wikisql/test.jsonl", 100},
                                                   {"mlx_wikisql/train.jsonl", 1000},
                                                   {"mlx_wikisql/valid.jsonl", 100},
                                                   {"self_instruct/seed_tasks.jsonl", 175},
                                                   {"self_instruct/user_oriented_instructions.jsonl", 252},
                                                   {"tinyshakespeare/input.txt", 1},
                                                   {"torchtitan_sft_test.json", 10},
                                                   {"torchtune_tiny/chat_tiny.json", 1},
                                                   {"torchtune_tiny/hh_rlhf_tiny.json", 1},
                                                   {"torchtune_tiny/instruct_tiny.json", 2}};
  for (const auto& [name, count] : kFiles) {
    CAPTURE(name);
    const auto r = read_rows((root / name).string(), read_file(root / name));
    CHECK(r.error == "");
    CHECK(r.rows.size() == count);
  }
  for (const char* name : {"axolotl_fixtures/conversation.json", "axolotl_fixtures/conversation.missingturns.json",
                           "llamafactory/dataset_info.json"}) {
    CAPTURE(name);
    CHECK(contains(error_of([&] { open_rows(root / name); }, ErrorCode::data), "an object over several lines"));
  }
}
