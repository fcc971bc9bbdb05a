// SPDX-License-Identifier: Apache-2.0
// tiktoken vocabularies against tiktoken's own ids.
#include <doctest/doctest.h>

#include <algorithm>

#include "finetune/text/base64.h"
#include "finetune/text/tokenizer.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kParsed{.add_special = false, .parse_special = true};

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
