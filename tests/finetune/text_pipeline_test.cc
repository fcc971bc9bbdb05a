// SPDX-License-Identifier: Apache-2.0
// tokenizer.json with every part and option, against the ids and texts of HF tokenizers.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "finetune/text/tokenizer.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

std::string refusal(std::string_view base, const std::function<void(json&)>& change) {
  json j = pipeline_file(pipeline_case(base));
  change(j);
  return error_of([&] { load_json(j); });
}

std::vector<int32_t> ids_at(const json& list, size_t i) {
  return list[i].get<std::vector<int32_t>>();
}

}  // namespace

TEST_CASE("ids and decoded text are the reference's for every part and option") {
  const auto& texts = pipeline_golden().at("texts");
  CHECK(pipeline_golden().at("cases").size() > 40);
  int not_compared = 0;
  for (const auto& c : pipeline_golden().at("cases")) {
    const auto name = c.at("name").get<std::string>();
    const auto tokenizer = load_json(pipeline_file(c));
    CHECK(ids_text(tokenizer->encode("a", {.parse_special = true})) ==
          ids_text(c.at("around").get<std::vector<int32_t>>()));
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(name);
      CAPTURE(text);
      const auto plain = ids_at(c.at("plain"), i);
      CHECK(ids_text(tokenizer->encode(text, kPlain)) == ids_text(plain));
      const auto parsed = c.at("parsed")[i].is_number() ? plain : ids_at(c.at("parsed"), i);
      CHECK(ids_text(tokenizer->encode(text, kParsed)) == ids_text(parsed));
      if (!c.contains("decoded")) continue;
      const auto& decoded = c.at("decoded")[i];
      if (decoded.is_null()) {
        ++not_compared;
        continue;
      }
      CHECK(tokenizer->decode(plain, false) == (decoded.is_number() ? text : decoded.get<std::string>()));
    }
  }
  CHECK(not_compared < 10);
}

TEST_CASE("control tokens in a text are text unless asked for") {
  for (const auto& c : pipeline_golden().at("cases")) {
    const auto tokenizer = load_json(pipeline_file(c));
    CAPTURE(c.at("name").get<std::string>());
    const std::string text = "the</s>the<s>";
    const auto plain = tokenizer->encode(text, kPlain), parsed = tokenizer->encode(text, kParsed);
    CHECK(std::count_if(plain.begin(), plain.end(), [](int32_t id) { return id == 1 || id == 2; }) == 0);
    CHECK(std::count(parsed.begin(), parsed.end(), 2) == 1);
    CHECK(parsed.back() == 1);
  }
}

TEST_CASE("bytes that are not UTF-8: kept by byte-level vocabularies, U+FFFD elsewhere") {
  const std::string bad = "the \xFF\xC0 \xE2\x82 \xF0\x9F\x98 a\x80";
  const std::string shown = "the \uFFFD\uFFFD \uFFFD \uFFFD a\uFFFD";
  for (const char* name : {"bytes", "bytes_llama3", "bytes_deepseek"}) {
    const auto tokenizer = load_json(pipeline_file(pipeline_case(name)));
    CHECK(tokenizer->decode(tokenizer->encode(bad, kPlain)) == bad);
    CHECK(tokenizer->unencodable(bad) == 0);
  }
  for (const char* name : {"llama2", "mistral", "unigram_bytes"}) {
    CAPTURE(name);
    const auto tokenizer = load_json(pipeline_file(pipeline_case(name)));
    CHECK(tokenizer->encode(bad, kPlain) == tokenizer->encode(shown, kPlain));
    CHECK(tokenizer->decode(tokenizer->encode(bad, kPlain)) == shown);
  }
}

TEST_CASE("decoded bytes that make no character stay bytes") {
  const auto tokenizer = load_json(pipeline_file(pipeline_case("llama2")));
  const std::vector<int32_t> ids = {tokenizer->token_id("<0xE2>"), tokenizer->token_id("<0x96>")};
  CHECK(tokenizer->decode(ids) == "\xE2\x96");
  CHECK(tokenizer->decode(std::vector<int32_t>{-1, 1 << 20}) == "\uFFFD\uFFFD");
  CHECK(tokenizer->decode(std::vector<int32_t>{1, tokenizer->token_id("th"), 2}) == "th");
}

TEST_CASE("text that a vocabulary cannot hold is counted") {
  const auto tokenizer = load_json(pipeline_file(pipeline_case("no_unk")));
  CHECK(tokenizer->unencodable("the river") == 0);
  CHECK(tokenizer->unencodable("the \u0e01\u0e01 the") == 6);
  CHECK(tokenizer->encode("the\u0e01", kPlain) == tokenizer->encode("the", kPlain));
  json j = pipeline_file(pipeline_case("unigram"));
  j["model"].erase("unk_id");
  const auto closed = load_json(j);
  CHECK(contains(error_of([&] { closed->encode("\u0e01"); }, ErrorCode::data), "no token for"));
}

TEST_CASE("of ways with equal scores the reference's is taken") {
  json vocab = json::array();
  for (const auto& [text, score] : {std::pair("<unk>", 0.0), std::pair("a", -1.0), std::pair("b", -1.0),
                                    std::pair("ab", -2.0), std::pair("ba", -2.0), std::pair("aba", -3.0)}) {
    vocab.push_back(json::array({text, score}));
  }
  const auto tokenizer = load_json({{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}});
  CHECK(ids_text(tokenizer->encode("ab", kPlain)) == "3");
  CHECK(ids_text(tokenizer->encode("aba", kPlain)) == "5");
  CHECK(ids_text(tokenizer->encode("abab", kPlain)) == "3 3");
  CHECK(ids_text(tokenizer->encode("baab", kPlain)) == "4 3");
}

TEST_CASE("merges that make a control token do not") {
  json j = {{"model",
             {{"type", "BPE"},
              {"vocab", {{"<", 0}, {"s", 1}, {">", 2}, {"<s", 3}, {"<s>", 4}}},
              {"merges", {"< s", "<s >"}}}},
            {"added_tokens", {{{"id", 4}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}}};
  const auto tokenizer = load_json(j);
  CHECK(ids_text(tokenizer->encode("s<s>", kPlain)) == "1 3 2");
  CHECK(ids_text(tokenizer->encode("s<s>", kParsed)) == "1 4");
  j["added_tokens"][0]["special"] = false;
  CHECK(ids_text(load_json(j)->encode("s<s>", kPlain)) == "1 4");
}

TEST_CASE("files that make much of little are refused") {
  json j = pipeline_file(pipeline_case("llama2"));
  j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(300, 'a')}};
  CHECK(contains(error_of([&] { load_json(j); }), "at most 256"));
  json steps = json::array();
  for (int i = 0; i < 40; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  j["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  j["added_tokens"] = json::array();
  const auto tokenizer = load_json(j);
  CHECK(contains(error_of([&] { tokenizer->encode("a"); }, ErrorCode::data), "bytes of 1"));
  j = pipeline_file(pipeline_case("llama2"));
  j["model"]["vocab"]["far"] = 9'000'000;
  CHECK(contains(error_of([&] { load_json(j); }), "'far'"));
  j = pipeline_file(pipeline_case("llama2"));
  j["added_tokens"][3]["id"] = 9'000'000;
  CHECK(contains(error_of([&] { load_json(j); }), "9000000"));
}

TEST_CASE("tokenizer.json comes before tokenizer.model") {
  TempDir dir;
  write_file(dir / "tokenizer.json", pipeline_file(pipeline_case("llama2")).dump());
  write_file(dir / "tokenizer.model",
             from_base64(golden_entry("sentencepiece", "llama").at("model").get<std::string>()));
  CHECK(load_tokenizer(dir.path())->token_id("<tool>") > 0);
}

TEST_CASE("what is not known is refused by name and place") {
  const auto has = [](const std::string& message, std::initializer_list<const char*> parts) {
    CAPTURE(message);
    for (const char* part : parts) {
      CAPTURE(part);
      CHECK(contains(message, part));
    }
  };
  const auto put = [](const char* stage, json value) {
    return [stage, value = std::move(value)](json& j) { j[stage] = value; };
  };
  const json lower = {{"type", "Lowercase"}};
  has(refusal("llama2", put("normalizer", {{"type", "BertNormalizer"}})),
      {"tokenizer.json: normalizer:", "BertNormalizer"});
  has(refusal("llama2", put("normalizer", {{"type", "Sequence"}, {"normalizers", {lower, {{"type", "Foo"}}}}})),
      {"normalizer.normalizers[1]", "Foo"});
  has(refusal("llama2", put("normalizer", {{"type", "Sequence"}, {"normalizers", 3}})), {"normalizers", "a list"});
  has(refusal("llama2", put("normalizer", {{"type", "Prepend"}})), {"normalizer", "no prepend"});
  has(refusal("llama2", put("normalizer", {{"type", "Prepend"}, {"prepend", 5}})), {"prepend", "text"});
  has(refusal("llama2", put("normalizer", {{"type", "Strip"}, {"strip_left", true}})), {"no strip_right"});
  has(refusal("llama2", put("normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}})),
      {"empty"});
  has(refusal("llama2", put("normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}})),
      {"(a"});
  has(refusal("llama2", put("normalizer", {{"type", "Replace"}, {"pattern", "a"}, {"content", ""}})), {"pattern"});
  has(refusal("llama2", put("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAA"}})),
      {"precompiled_charsmap"});
  has(refusal("llama2", put("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}})),
      {"precompiled_charsmap"});
  has(refusal("llama2", put("normalizer", "NFC")), {"normalizer", "expected an object"});
  has(refusal("llama2", put("pre_tokenizer", {{"type", "Scripts"}})), {"pre_tokenizer", "Scripts"});
  has(refusal("llama2", put("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Split"}}}}})),
      {"pre_tokenizer.pretokenizers[0]", "pattern"});
  has(refusal("llama2", put("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Kept"}})),
      {"'Kept'"});
  has(refusal("llama2", put("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}})),
      {"replacement", "one character"});
  has(refusal("llama2",
              put("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}})),
      {"'last'"});
  has(refusal(
          "llama2",
          put("pre_tokenizer",
              {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"add_prefix_space", false}})),
      {"contradicts"});
  has(refusal("llama2", put("pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}})), {"length"});
  has(refusal("llama2", put("decoder", {{"type", "WordPiece"}})), {"decoder", "WordPiece"});
  has(refusal("llama2", put("decoder", {{"type", "CTC"}})), {"decoder", "CTC"});
  has(refusal("llama2", put("decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}})), {"start"});
  has(refusal("llama2", put("post_processor", {{"type", "Other"}})), {"post_processor", "Other"});
  has(refusal("llama2", put("post_processor", {{"type", "BertProcessing"}, {"sep", {"</s>"}}, {"cls", {"<s>", 1}}})),
      {"sep"});
  has(refusal("llama2", [](json& j) { j["post_processor"]["single"][1] = j["post_processor"]["single"][0]; }),
      {"no place"});
  has(refusal("llama2", [](json& j) { j["post_processor"]["single"][0] = j["post_processor"]["single"][1]; }),
      {"twice"});
  has(refusal("llama2", [](json& j) { j["post_processor"]["special_tokens"]["<s>"]["ids"] = {-1}; }), {"token id"});
  for (const char* type : {"WordPiece", "WordLevel"}) {
    has(refusal("llama2", [&](json& j) { j["model"]["type"] = type; }), {type, "not supported"});
  }
  has(refusal("unigram", [](json& j) { j["model"]["unk_id"] = 100000; }), {"unk_id"});
  has(refusal("unigram", [](json& j) { j["model"]["vocab"][5] = {"a"}; }), {"vocab[5]"});
  has(refusal("unigram", [](json& j) { j["model"]["vocab"][5][1] = "b"; }), {"vocab[5]"});
  has(refusal("unigram", [](json& j) { j["model"]["vocab"] = json::object(); }), {"vocab"});
  has(refusal("affixes", [](json& j) { j["model"]["merges"][0] = {"t", "h"}; }), {"continuing_subword_prefix"});
  has(refusal("unk", [](json& j) { j["model"]["unk_token"] = "<none>"; }), {"<none>"});
  has(refusal("llama2", [](json& j) { j["added_tokens"][0]["single_word"] = 1; }), {"added_tokens[0]", "single_word"});
}

TEST_CASE("damaged files give a message or a tokenizer, never a crash") {
  RandomText random(23);
  size_t refused = 0, read = 0;
  for (const char* name : {"bytes_deepseek", "llama2", "unigram_bytes", "precompiled", "affixes"}) {
    json j = pipeline_file(pipeline_case(name));
    j["model"]["vocab"] = name == std::string("unigram_bytes")
                              ? json(std::vector<json>(j["model"]["vocab"].begin(), j["model"]["vocab"].begin() + 60))
                              : j["model"]["vocab"];
    const std::string good = j.dump();
    for (int round = 0; round < 150; ++round) {
      std::string bad = good;
      for (uint32_t k = 0; k <= random.next() % 3; ++k) {
        const size_t at = random.next() % bad.size();
        switch (random.next() % 4) {
          case 0:
            bad[at] = static_cast<char>(random.next());
            break;
          case 1:
            bad[at] = "0123456789[]{}\",:-\\"[random.next() % 19];
            break;
          case 2:
            bad.erase(at, random.next() % 9);
            break;
          default:
            bad.insert(at, bad.substr(random.next() % bad.size(), random.next() % 20));
        }
      }
      TempDir dir;
      write_file(dir / "tokenizer.json", bad);
      try {
        const auto tokenizer = load_tokenizer(dir.path());
        ++read;
        for (const auto& text : pipeline_golden().at("texts")) {
          tokenizer->decode(tokenizer->encode(text.get<std::string>(), kParsed));
        }
      } catch (const Error& e) {
        ++refused;
        CHECK((e.code() == ErrorCode::model || e.code() == ErrorCode::data));
        CHECK(std::string(e.what()).size() > 10);
      }
    }
  }
  CHECK(refused > 100);
  CHECK(read > 10);
}
