// SPDX-License-Identifier: Apache-2.0
// tiktoken vocabularies against tiktoken's own ids.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "finetune/text/base64.h"
#include "finetune/text/tokenizer.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

const json& golden() {
  static const json j =
      json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "tokenizer_golden.json"));
  return j;
}

std::shared_ptr<const Tokenizer> load(const std::string& ranks, const json& beside, const char* name = "x.tiktoken",
                                      const json& config = nullptr) {
  TempDir dir;
  write_file(dir / name, ranks);
  if (!beside.is_null()) write_file(dir / "tiktoken.json", beside.dump());
  if (!config.is_null()) write_file(dir / "tokenizer_config.json", config.dump());
  return load_tokenizer(dir.path());
}

}  // namespace

TEST_CASE("ids are tiktoken's, from either name of the file") {
  const auto& g = golden().at("tiktoken");
  const auto ranks = g.at("file").get<std::string>();
  for (const char* name : {"x.tiktoken", "tokenizer.model"}) {
    const auto tokenizer = load(ranks, g.at("beside"), name);
    CHECK(tokenizer->adds_bos());
    CHECK_FALSE(tokenizer->adds_eos());
    for (size_t i = 0; i < golden().at("texts").size(); ++i) {
      const auto text = golden().at("texts")[i].get<std::string>();
      CAPTURE(text);
      const auto ids = tokenizer->encode(text, kPlain);
      CHECK(ids_text(ids) == ids_text(g.at("plain")[i].get<std::vector<int32_t>>()));
      CHECK(ids_text(tokenizer->encode(text, kParsed)) == ids_text(g.at("parsed")[i].get<std::vector<int32_t>>()));
      CHECK(tokenizer->decode(ids) == text);
    }
    // The files that it writes are the same tokenizer.
    TempDir dir;
    for (const auto& [file, content] : tokenizer->files()) write_file(dir / file, content);
    CHECK(load_tokenizer(dir.path())->encode("the <tool> river", kParsed) ==
          tokenizer->encode("the <tool> river", kParsed));
  }
}

TEST_CASE("control tokens are text unless asked for") {
  const auto& g = golden().at("tiktoken");
  const auto tokenizer = load(g.at("file").get<std::string>(), g.at("beside"));
  const auto plain = tokenizer->encode("the</s><s>", kPlain), parsed = tokenizer->encode("the</s><s>", kParsed);
  CHECK(std::count(plain.begin(), plain.end(), tokenizer->eos_id()) == 0);
  CHECK(parsed.back() == tokenizer->bos_id());
  CHECK(tokenizer->decode(parsed) == "the");
  CHECK(tokenizer->decode(std::vector<int32_t>{tokenizer->token_id("<tool>") - 1}) == "\uFFFD");
}

TEST_CASE("tokenizer_config.json names control tokens, BOS and EOS") {
  const auto& g = golden().at("tiktoken");
  const json config = {{"added_tokens_decoder", {{"400", {{"content", "<|a|>"}, {"special", true}}}}},
                       {"bos_token", "<|a|>"},
                       {"eos_token", "<|a|>"},
                       {"add_bos_token", false},
                       {"add_eos_token", true}};
  const auto tokenizer = load(g.at("file").get<std::string>(), g.at("beside"), "x.tiktoken", config);
  CHECK(tokenizer->encode("the").back() == 400);
  CHECK_FALSE(tokenizer->adds_bos());
  CHECK(tokenizer->token_id("<s>") == -1);
}

TEST_CASE("bytes that are not UTF-8 and long words come back") {
  const auto& g = golden().at("tiktoken");
  const auto tokenizer = load(g.at("file").get<std::string>(), g.at("beside"));
  RandomText random(3);
  for (int i = 0; i < 200; ++i) {
    const std::string text = i % 2 == 0 ? random.bytes(random.next() % 60) : random.utf8(random.next() % 60);
    CHECK(tokenizer->decode(tokenizer->encode(text, kPlain)) == text);
  }
  const std::string word(1 << 18, 'e');
  CHECK(tokenizer->decode(tokenizer->encode(word, kPlain)) == word);
}

TEST_CASE("unknown vocabularies and damaged files are refused") {
  const auto& g = golden().at("tiktoken");
  const auto ranks = g.at("file").get<std::string>();
  const auto refusal = [&](const std::string& file, const json& beside) {
    return error_of([&] { load(file, beside); });
  };
  CHECK(contains(refusal(ranks, nullptr), "not known"));
  CHECK(contains(refusal("aGVsbG8= 0\nd29ybGQ= 1\n", nullptr), "2 tokens"));
  CHECK(contains(refusal("", g.at("beside")), "empty"));
  CHECK(contains(refusal("IQ== 0\nIQ== 1\n", g.at("beside")), ":2: the token is there twice"));
  CHECK(contains(refusal("IQ== 0\nIg== 0\n", g.at("beside")), "rank 0 is there twice"));
  CHECK(contains(refusal("IQ== 0\nIg==\n", g.at("beside")), ":2:"));
  CHECK(contains(refusal("IQ== 0\n!g== 1\n", g.at("beside")), "base64"));
  CHECK(contains(refusal("IQ== -1\n", g.at("beside")), "rank"));
  CHECK(contains(refusal("IQ== 99999999999\n", g.at("beside")), "rank"));
  CHECK(contains(refusal("IQ== 1x\n", g.at("beside")), "rank"));
  CHECK(contains(refusal(ranks, {{"pattern", "(a"}}), "(a"));
  CHECK(contains(refusal(ranks, {{"special_tokens", {{"<s>", 300}}}}), "no pattern"));
  CHECK(contains(refusal(ranks, {{"pattern", "a"}, {"special_tokens", {{"<s>", -1}}}}), "<s>"));
  CHECK(contains(refusal(ranks, {{"pattern", "a"}, {"special_tokens", {{"<s>", 3}}}}), "<s>"));
  CHECK(contains(refusal(ranks, {{"pattern", "a"}, {"bos_token", "<s>"}}), "bos_token"));
  TempDir two;
  write_file(two / "a.tiktoken", ranks);
  write_file(two / "b.tiktoken", ranks);
  CHECK(contains(error_of([&] { load_tokenizer(two.path()); }), "more than one"));
}

TEST_CASE("tekken.json: the same list behind control tokens") {
  const auto& g = golden().at("tiktoken");
  json tekken = {{"config",
                  {{"pattern", g.at("beside").at("pattern")},
                   {"num_vocab_tokens", 1000},
                   {"default_num_special_tokens", 22},
                   {"version", "v3"}}},
                 {"vocab", json::array()}};
  std::istringstream lines(g.at("file").get<std::string>());
  for (std::string bytes, rank; lines >> bytes >> rank;) {
    tekken["vocab"].push_back({{"rank", std::stoi(rank)}, {"token_bytes", bytes}, {"token_str", nullptr}});
  }
  const auto ranks = static_cast<int32_t>(tekken["vocab"].size());
  // Tokens beyond the size that the file names are not there.
  tekken["vocab"].push_back({{"rank", ranks}, {"token_bytes", "YmV5b25k"}, {"token_str", "beyond"}});
  tekken["config"]["default_vocab_size"] = ranks + 22;
  const auto load_tekken = [](const json& j, const json& config = nullptr) {
    TempDir dir;
    write_file(dir / "tekken.json", j.dump());
    if (!config.is_null()) write_file(dir / "tokenizer_config.json", config.dump());
    return load_tokenizer(dir.path());
  };
  const auto tokenizer = load_tekken(tekken);
  CHECK(tokenizer->vocab_size() == ranks + 22);
  CHECK(tokenizer->bos_id() == 1);
  CHECK(tokenizer->eos_id() == 2);
  CHECK(tokenizer->token_id("[INST]") == 3);
  CHECK(tokenizer->token_id("[TOOL_CONTENT]") == 19);
  CHECK(tokenizer->piece(21) == "<SPECIAL_21>");
  CHECK(tokenizer->is_special(21));
  CHECK_FALSE(tokenizer->is_special(22));
  CHECK(tokenizer->encode("the").front() == 1);
  for (size_t i = 0; i < golden().at("texts").size(); ++i) {
    const auto text = golden().at("texts")[i].get<std::string>();
    CAPTURE(text);
    auto want = g.at("plain")[i].get<std::vector<int32_t>>();
    for (int32_t& id : want) id += 22;
    const auto ids = tokenizer->encode(text, kPlain);
    CHECK(ids_text(ids) == ids_text(want));
    CHECK(tokenizer->decode(ids) == text);
  }
  const auto parsed = tokenizer->encode("[INST]the[/INST]</s>", kParsed);
  CHECK(parsed.front() == 3);
  CHECK(parsed.back() == 2);
  // A run's folder carries the file.
  TempDir dir;
  for (const auto& [file, content] : tokenizer->files()) write_file(dir / file, content);
  CHECK(load_tokenizer(dir.path())->encode("the river") == tokenizer->encode("the river"));

  json named = tekken;
  named["config"]["version"] = "v13";
  const auto refusal = [&](const json& j) { return error_of([&] { load_tekken(j); }); };
  CHECK(contains(refusal(named), "special_tokens"));
  named["special_tokens"] = {{{"rank", 0}, {"token_str", "<unk>"}, {"is_control", true}},
                             {{"rank", 1}, {"token_str", "<s>"}, {"is_control", true}},
                             {{"rank", 2}, {"token_str", "</s>"}, {"is_control", true}},
                             {{"rank", 3}, {"token_str", "[THINK]"}, {"is_control", true}}};
  const auto newer = load_tekken(named, {{"add_bos_token", false}, {"add_eos_token", true}});
  CHECK(newer->token_id("[THINK]") == 3);
  CHECK(newer->piece(4) == "<SPECIAL_4>");
  CHECK(newer->encode("the").back() == 2);
  CHECK_FALSE(newer->adds_bos());
  const auto refused = [&](const char* path, const json& value, const char* part) {
    json j = named;
    j[json::json_pointer(path)] = value;
    const std::string error = refusal(j);
    CAPTURE(error);
    CHECK(contains(error, part));
  };
  refused("/special_tokens/3/token_str", "<s>", "'<s>' is there twice");
  refused("/special_tokens/3/token_str", "<SPECIAL_7>", "'<SPECIAL_7>' is there twice");
  refused("/special_tokens/3/rank", 7, "special_tokens[3]: expected rank 3");
  refused("/special_tokens/1/token_str", "<bos>", "'<s>' is not among");
  refused("/config/default_num_special_tokens", 3, "at most 3");
  refused("/config/default_num_special_tokens", -1, "default_num_special_tokens");
  refused("/config/default_vocab_size", 20, "default_vocab_size is 20");
  refused("/config/default_vocab_size", ranks + 24, "vocab: expected a list of at least");
  refused("/config/pattern", "(a", "(a");
  refused("/vocab/5/rank", 6, "vocab[5]: expected rank 5");
  refused("/vocab/5/token_bytes", "!", "vocab[5]");
  refused("/vocab/6/token_bytes", tekken["vocab"][5]["token_bytes"], "vocab[6]: the token is there twice");
  refused("/config", nullptr, "config");
}

TEST_CASE("base64") {
  CHECK(base64_decode("").value() == "");
  CHECK(base64_decode("QUI=").value() == "AB");
  CHECK(base64_decode("QQ==").value() == "A");
  CHECK(base64_decode("QUJD").value() == "ABC");
  for (const char* bad : {"QQ", "Q===", "QQ=a", "QU J", "====", "Q\n=="}) {
    CAPTURE(bad);
    CHECK_FALSE(base64_decode(bad).has_value());
  }
}
