// SPDX-License-Identifier: Apache-2.0
// Rows to samples: spans that are trained, length policies, the report, and every error.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "data_testing.h"
#include "finetune/data/batch.h"
#include "finetune/data/dataset.h"
#include "finetune/data/samples/token_cache.h"
#include "kernels/cross_entropy.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

std::string row(const std::string& prompt, const std::string& completion) {
  return json{{"prompt", prompt}, {"completion", completion}}.dump() + "\n";
}

class Fixture {
 public:
  std::shared_ptr<ByteTokenizer> tokenizer = std::make_shared<ByteTokenizer>();
  DataOptions options{.max_seq_length = 100, .max_excess_fraction = 1};
  DatasetSpec spec;

  Dataset read(const std::string& content) {
    write_file(dir_ / "d.jsonl", content);
    spec.path = dir_ / "d.jsonl";
    return read_datasets({spec}, tokenizer, options);
  }
  std::string error(const std::string& content, ErrorCode code = ErrorCode::data) {
    return error_of([&] { read(content); }, code);
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

// What the labels of a sample's batch say, as text.
std::string supervised(const Dataset& d, size_t i) {
  const Batch b = make_batch(d.samples, {static_cast<int32_t>(i)});
  std::vector<int32_t> ids;
  for (const int32_t label : b.labels) {
    if (label != kIgnoreLabel) ids.push_back(label);
  }
  return ByteTokenizer().decode(ids, false);
}
std::string whole(const SampleView& s) {
  return ByteTokenizer().decode(s.ids, false);
}

}  // namespace

TEST_CASE("prompt and completion: the completion and EOS are trained") {
  Fixture f;
  const auto d = f.read(row("Q: ", "A") + row("", "abc") + row("p", ""));
  REQUIRE(d.samples.size() == 3);
  CHECK(whole(d.samples[0]) == "<s>Q: A</s>");
  CHECK(supervised(d, 0) == "A</s>");
  CHECK(supervised(d, 1) == "abc</s>");
  CHECK(supervised(d, 2) == "</s>");
  for (const auto& s : d.samples) CHECK(s.trained[0] == 0);
  CHECK(d.report.supervised_tokens == 2 + 4 + 1);
  CHECK(d.report.tokens == 6 + 5 + 3);
  f.options.mask.train_on_inputs = true;
  CHECK(supervised(f.read(row("Q: ", "A")), 0) == "Q: A</s>");
}

TEST_CASE("without BOS the first token cannot be a target") {
  Fixture f;
  f.tokenizer->bos = false;
  const auto d = f.read(row("", "abc") + row("", ""));
  REQUIRE(d.samples.size() == 1);
  CHECK(whole(d.samples[0]) == "abc</s>");
  CHECK(supervised(d, 0) == "bc</s>");
  CHECK(d.report.rows_without_target == 1);
  CHECK(d.report.rows_dropped == 1);
  CHECK(d.report.affected.at(0).line == 2);
}

TEST_CASE("text: all but the first is trained; EOS is there once") {
  Fixture f;
  f.spec.type = DatasetType::text;
  CHECK(supervised(f.read("{\"text\": \"hello\"}\n"), 0) == "hello</s>");
  f.tokenizer->eos = true;
  CHECK(whole(f.read("{\"text\": \"hello\"}\n").samples[0]) == "<s>hello</s>");
  f.spec.type = DatasetType::prompt_completion;
  CHECK(whole(f.read(row("p", "c")).samples[0]) == "<s>pc</s>");
}

TEST_CASE("fields have the names that the recipe gives") {
  Fixture f;
  f.spec.field_prompt = "instruction";
  f.spec.field_completion = "response";
  const auto d = f.read(R"({"instruction": "a", "response": "b", "extra": [1, {"x": null}]})");
  CHECK(whole(d.samples[0]) == "<s>ab</s>");
}

TEST_CASE("a limit that is not reached changes nothing") {
  Fixture f;
  const std::string content = row("abc", "defg") + row("x", "y");
  const auto want = f.read(content);
  for (const auto policy : {ExcessLength::drop, ExcessLength::truncate, ExcessLength::raise}) {
    f.options.excess_length_strategy = policy;
    f.options.max_seq_length = 9;  // the length of the first row
    const auto got = f.read(content);
    REQUIRE(got.samples.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
      CHECK(got.samples[i] == want.samples[i]);
    }
    CHECK(got.report.affected.empty());
    CHECK(got.report.tokens_lost == 0);
  }
}

TEST_CASE("drop") {
  Fixture f;
  f.options.max_seq_length = 8;
  const auto d = f.read(row("abc", "defg") + "\n" + row("x", "y"));
  REQUIRE(d.samples.size() == 1);
  const auto& r = d.report;
  CHECK(r.rows_read == 2);
  CHECK(r.rows_kept == 1);
  CHECK(r.rows_dropped == 1);
  CHECK(r.rows_too_long == 1);
  CHECK(r.tokens_lost == 9);
  CHECK(r.longest_row == 9);
  CHECK(r.longest_kept == 4);
  REQUIRE(r.affected.size() == 1);
  CHECK(r.affected[0].line == 1);
  CHECK(r.affected[0].tokens == 9);
  CHECK(r.affected[0].what == "dropped: 9 tokens > max_seq_length 8");
  // The row that stays keeps its identity.
  CHECK(d.samples[0].id == f.read(row("a", "b") + row("x", "y")).samples[1].id);
}

TEST_CASE("truncate keeps the first tokens; a row without a target left is dropped") {
  Fixture f;
  f.options.max_seq_length = 6;
  f.options.excess_length_strategy = ExcessLength::truncate;
  const auto d = f.read(row("abc", "defg") + row("a long prompt", "x") + row("x", "y"));
  REQUIRE(d.samples.size() == 2);
  CHECK(whole(d.samples[0]) == "<s>abcde");
  CHECK(supervised(d, 0) == "de");
  const auto& r = d.report;
  CHECK(r.rows_kept == 2);
  CHECK(r.rows_cut == 1);
  CHECK(r.rows_dropped == 1);
  CHECK(r.rows_without_target == 1);
  CHECK(r.rows_too_long == 2);
  CHECK(r.tokens_lost == 3 + 16);
  REQUIRE(r.affected.size() == 2);
  CHECK(contains(r.affected[0].what, "cut"));
  CHECK(contains(r.affected[1].what, "no trained token is left"));
}

TEST_CASE("split: pieces of a text, each with its own identity") {
  Fixture f;
  f.spec.type = DatasetType::text;
  f.options.max_seq_length = 4;
  f.options.max_excess_fraction = 0;
  f.options.excess_length_strategy = ExcessLength::split;
  const auto d = f.read("{\"text\": \"abcdefg\"}\n{\"text\": \"xy\"}\n{\"text\": \"012\"}\n");
  REQUIRE(d.samples.size() == 5 - 1);  // 9 tokens: 4 + 4 + 1, and the single one cannot be trained
  CHECK(whole(d.samples[0]) == "<s>abc");
  CHECK(whole(d.samples[1]) == "defg");
  CHECK(supervised(d, 1) == "efg");
  CHECK(whole(d.samples[2]) == "<s>xy</s>");
  CHECK(whole(d.samples[3]) == "<s>012");
  CHECK(d.report.rows_split == 2);
  CHECK(d.report.rows_kept == 3);
  CHECK(d.report.samples == 4);
  CHECK(d.report.tokens_lost == 2);
  std::set<uint64_t> ids;
  for (const auto& s : d.samples) ids.insert(s.id);
  CHECK(ids.size() == 4);
  f.spec.type = DatasetType::prompt_completion;
  CHECK(contains(f.error(row("a", "b"), ErrorCode::usage), "type text only"));
}

TEST_CASE("raise, and more rows over the limit than allowed") {
  Fixture f;
  f.options.max_seq_length = 8;
  const std::string content = row("x", "y") + row("abc", "defg") + row("x", "y") + row("x", "y");
  f.options.excess_length_strategy = ExcessLength::raise;
  auto e = f.error(content);
  CHECK(contains(e, "d.jsonl:2:"));
  CHECK(contains(e, "1 of 4 rows"));
  CHECK(contains(e, "9 tokens"));
  CHECK(contains(e, "gradient_checkpointing"));
  for (const auto policy : {ExcessLength::drop, ExcessLength::truncate}) {
    f.options.excess_length_strategy = policy;
    f.options.max_excess_fraction = 0.2;
    CHECK(contains(f.error(content), "max_excess_fraction 0.2"));
    f.options.max_excess_fraction = 0.25;
    CHECK(f.error(content).empty());
  }
}

TEST_CASE("the report in words and in JSON") {
  Fixture f;
  f.options.max_seq_length = 8;
  const auto d = f.read(row("abc", "defg~~") + row("x", "y~"));
  CHECK(d.report.bytes_without_token == 3);
  const std::string text = d.report.summary();
  CHECK(contains(text, "2 rows read, 1 kept, 1 dropped"));
  CHECK(contains(text, "3 bytes have no token"));
  CHECK(text.find("gradient_checkpointing") < text.find("raise max_seq_length"));
  CHECK(contains(text, "9 keeps every row whole"));
  const auto j = json::parse(d.report.to_json());
  CHECK(j.at("rows_read") == 2);
  CHECK(j.at("longest_row") == 9);
  CHECK(j.at("bytes_without_token") == 3);
  REQUIRE(j.at("affected").size() == 3);
  CHECK(j.at("affected")[1].at("line") == 1);
  CHECK(contains(j.at("affected")[1].at("what").get<std::string>(), "dropped"));
  CHECK_FALSE(contains(f.read(row("x", "y")).report.summary(), "gradient_checkpointing"));
}

TEST_CASE("errors of a dataset as a whole") {
  Fixture f;
  CHECK(contains(f.error("\n \n"), "no rows"));
  CHECK(contains(f.error(""), "no rows"));
  f.options.max_seq_length = 4;
  const auto e = f.error(row("long prompt", "a") + row("longer prompt", "b"));
  CHECK(contains(e, "no trained token in any of 2 rows"));
  CHECK(contains(e, "2 dropped"));
  CHECK(contains(e, "longest row has 16 tokens"));
  f.options.max_seq_length = 1;
  CHECK(contains(f.error(row("a", "b"), ErrorCode::usage), "max_seq_length 1"));
  f.options = {.max_excess_fraction = 1.5};
  CHECK(contains(f.error(row("a", "b"), ErrorCode::usage), "max_excess_fraction"));
  f.options = {};
  f.tokenizer->has_eos = false;
  CHECK(contains(f.error(row("a", "b"), ErrorCode::model), "no EOS"));
  CHECK(contains(error_of([&] { read_datasets({}, std::make_shared<ByteTokenizer>(), {}); }, ErrorCode::usage),
                 "no dataset"));
  CHECK(
      contains(error_of([&] { read_datasets({{.path = f.dir() / "no.jsonl"}}, std::make_shared<ByteTokenizer>(), {}); },
                        ErrorCode::data),
               "no such file"));
  std::filesystem::create_directories(f.dir() / "empty");
  CHECK(contains(error_of([&] { read_datasets({{.path = f.dir() / "empty"}}, std::make_shared<ByteTokenizer>(), {}); },
                          ErrorCode::data),
                 "empty"));
}

TEST_CASE("several files are one dataset; the same line of two files has two identities") {
  Fixture f;
  write_file(f.dir() / "a.jsonl", row("a", "b"));
  write_file(f.dir() / "b.jsonl", row("c", "d") + row("e", "f"));
  const auto d = read_datasets({{.path = f.dir() / "a.jsonl"}, {.path = f.dir() / "b.jsonl"}}, f.tokenizer, {});
  REQUIRE(d.samples.size() == 3);
  CHECK(d.report.rows_read == 3);
  CHECK(d.samples[0].id != d.samples[1].id);
}

TEST_CASE("validation rows are drawn by seed and leave the rest in order") {
  Fixture f;
  std::string content;
  for (int i = 0; i < 50; ++i) content += row("p", std::to_string(i));
  const auto all = f.read(content);
  auto train = all, again = all, other = all;
  const auto valid = split_off_validation(train, 10, 3);
  CHECK(valid.samples.size() == 10);
  CHECK(train.samples.size() == 40);
  CHECK(valid.report.rows_kept == 10);
  std::set<uint64_t> seen;
  for (const Dataset* part : {static_cast<const Dataset*>(&train), &valid}) {
    for (size_t i = 0; i < part->samples.size(); ++i) {
      seen.insert(part->samples[i].id);
      if (i > 0) CHECK(part->samples[i - 1].id < part->samples[i].id);
    }
  }
  CHECK(seen.size() == 50);
  const auto same = split_off_validation(again, 0.2, 3);
  REQUIRE(same.samples.size() == 10);
  for (size_t i = 0; i < 10; ++i) CHECK(same.samples[i].id == valid.samples[i].id);
  const auto drawn = split_off_validation(other, 10, 4);
  bool differs = false;
  for (size_t i = 0; i < 10; ++i) differs = differs || drawn.samples[i].id != valid.samples[i].id;
  CHECK(differs);
  auto none = all;
  CHECK(split_off_validation(none, 0, 1).samples.empty());
  CHECK(none.samples.size() == 50);
  for (const double bad : {50.0, 51.0, -1.0, 2.5, std::nan("")}) {
    auto copy = all;
    CAPTURE(bad);
    CHECK(contains(error_of([&] { split_off_validation(copy, bad, 1); }, ErrorCode::usage), "val_set_size"));
  }
}

TEST_CASE("pieces of one row stay on one side") {
  Fixture f;
  f.spec.type = DatasetType::text;
  f.options.max_seq_length = 4;
  f.options.excess_length_strategy = ExcessLength::split;
  auto d = f.read("{\"text\": \"abcdefghij\"}\n{\"text\": \"klmnopqrst\"}\n");
  REQUIRE(d.samples.size() == 6);
  const auto valid = split_off_validation(d, 1, 9);
  CHECK(valid.samples.size() == 3);
  CHECK(d.samples.size() == 3);
  auto single = f.read("{\"text\": \"abcdefghij\"}\n");
  CHECK(contains(error_of([&] { split_off_validation(single, 1, 9); }, ErrorCode::usage), "one row"));
}

TEST_CASE("JSONL: what is fine") {
  Fixture f;
  const auto d =
      f.read("\xEF\xBB\xBF" + row("a", "b") + "\r\n   \n" + R"({"prompt":"c","completion":"\ud83d\ude00\r"})" + "\r\n" +
             R"({"prompt":"e","completion":"f"})");
  REQUIRE(d.samples.size() == 3);
  CHECK(supervised(d, 1) == "\U0001F600\r</s>");
  CHECK((d.samples[1].id >> 24 & 0xFFFFFFFF) == 1);  // rows, not lines
  CHECK((d.samples[2].id >> 24 & 0xFFFFFFFF) == 2);
}

TEST_CASE("JSONL: what is refused, with file, line and column") {
  Fixture f;
  f.spec.type = DatasetType::prompt_completion;
  const std::string good = row("a", "b");
  CHECK(contains(f.error(good + "\n{\"prompt\": \"x\", }\n"), "d.jsonl:3:17: "));
  CHECK(contains(f.error(good + "{\"prompt\": \"x\"\n"), "d.jsonl:2:"));
  CHECK(contains(f.error(good + "[1]\n"), "d.jsonl:2:1: expected an object, found array"));
  CHECK(contains(f.error("[\n{}]"), "one JSON array"));
  CHECK(contains(f.error("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
  CHECK(contains(f.error("<!DOCTYPE html>"), "web page"));
  CHECK(contains(f.error(R"({"prompt":"a","completion":"\ud800"})"), "d.jsonl:1:"));
  CHECK(contains(f.error("{\"prompt\":\"a\",\"completion\":\"\xFF\"}"), "d.jsonl:1:"));
  CHECK(contains(f.error("{\"prompt\":\"a\",\"completion\":\"\n\"}"), "d.jsonl:1:"));
  CHECK(contains(f.error(good + good + R"({"prompt":"a"})"), "d.jsonl:3: no field 'completion' (found: prompt)"));
  CHECK(contains(f.error("{}"), "(found: none)"));
  CHECK(contains(f.error(R"({"prompt":"a","completion":null})"), "d.jsonl:1: completion: expected text, found null"));
  CHECK(contains(f.error(R"({"prompt":["a"],"completion":""})"), "d.jsonl:1: prompt: expected text, found array"));
  CHECK(contains(f.error(std::string(100000, '[')), "nested deeper"));
  CHECK(contains(f.error("{\"a\":" + std::string(70, '[') + std::string(70, ']') + "}"), "nested deeper"));
  CHECK(contains(f.error(R"({"prompt":"a","completion":"b","n":1e999})"), "d.jsonl:1:"));
}

TEST_CASE("prepared data come back with their report; an entry with another one's is prepared again") {
  Fixture f;
  f.options.cache = f.dir() / "cache";
  const std::string content = row("abc", "defg~") + row("x", "y");
  const Dataset first = f.read(content), second = f.read(content);
  CHECK_FALSE(first.from_cache);
  CHECK(second.from_cache);
  const auto same = [&](const Dataset& d) {
    CHECK(d.report == first.report);
    REQUIRE(d.samples.size() == first.samples.size());
    for (size_t i = 0; i < d.samples.size(); ++i) CHECK(d.samples[i] == first.samples[i]);
  };
  same(second);
  std::string key;
  for (const auto& entry : std::filesystem::directory_iterator(f.options.cache)) key = entry.path().stem().string();
  for (const char* metadata : {"", "{}", "[1]", "not JSON", "{\"rows_read\": \"many\"}"}) {
    CAPTURE(metadata);
    auto writer = TokenCache(f.options.cache).writer(key);
    writer.add(SampleView(Sample{.id = 7, .ids = {1, 2}, .trained = {0, 1}}));
    writer.commit(metadata);
    const Dataset again = f.read(content);
    CHECK_FALSE(again.from_cache);
    CHECK(again.cache_problem.empty());
    same(again);
    CHECK(f.read(content).from_cache);
  }
}

#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
namespace {
size_t anonymous_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
  return 0;
}
}  // namespace

TEST_CASE("memory does not grow with the data: rows are read in rounds, tokens are in the file") {
  Fixture f;
  f.options.cache = f.dir() / "cache";
  f.options.max_seq_length = 1000;
  f.options.num_threads = 2;
  std::string content;
  for (int i = 0; i < 80000; ++i) content += row(std::to_string(i), std::string(700, 'x'));
  f.read(content.substr(0, content.find('\n') + 1));  // what the first use of everything takes
  content.shrink_to_fit();
  const size_t before = anonymous_bytes();
  REQUIRE(before > 0);
  size_t most = 0;
  f.options.progress = [&](int64_t) { most = std::max(most, anonymous_bytes()); };
  write_file(f.dir() / "d.jsonl", content);
  const Dataset d = read_datasets({{.path = f.dir() / "d.jsonl"}}, f.tokenizer, f.options);
  CHECK(d.samples.tokens() > 56'000'000);  // 5 bytes each
  CHECK(most < before + (size_t{64} << 20));
  CHECK(anonymous_bytes() < before + (size_t{64} << 20));
}
#endif
