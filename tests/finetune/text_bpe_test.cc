// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE against the ids of the reference implementation, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "finetune/text/bpe_merges.h"
#include "finetune/text/byte_level.h"
#include "finetune/text/tokenizer.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

std::shared_ptr<const Tokenizer> from_json(const json& tokenizer, const json& config = nullptr) {
  TempDir dir;
  write_file(dir / "tokenizer.json", tokenizer.dump());
  if (!config.is_null()) write_file(dir / "tokenizer_config.json", config.dump());
  return load_tokenizer(dir.path());
}

const json& golden_json(std::string_view name) {
  return golden_entry("byte_level", name).at("json");
}

std::string refusal(std::string_view base, const std::function<void(json&)>& change, const json& config = nullptr) {
  json j = golden_json(base);
  change(j);
  return error_of([&] { from_json(j, config); });
}

// The vocabulary of a golden tokenizer.json as a GGUF file.
GgufBuilder gguf_of(const json& j, const char* pre) {
  std::vector<std::string> tokens, merges;
  for (const auto& [text, id] : j.at("model").at("vocab").items()) {
    tokens.resize(std::max(tokens.size(), id.get<size_t>() + 1));
    tokens[id.get<size_t>()] = text;
  }
  std::string types;
  std::vector<int32_t> type(tokens.size(), 1);
  for (const auto& t : j.at("added_tokens")) {
    const auto id = t.at("id").get<size_t>();
    tokens.resize(std::max(tokens.size(), id + 1));
    type.resize(tokens.size(), 1);
    tokens[id] = t.at("content").get<std::string>();
    type[id] = t.at("special").get<bool>() ? 3 : 4;
  }
  for (const auto& m : j.at("model").at("merges")) {
    merges.push_back(m.is_string() ? m.get<std::string>() : m[0].get<std::string>() + " " + m[1].get<std::string>());
  }
  GgufBuilder b;
  b.value_text("general.architecture", "llama");
  b.value_text("tokenizer.ggml.model", "gpt2");
  if (pre != nullptr) b.value_text("tokenizer.ggml.pre", pre);
  b.value_text_array("tokenizer.ggml.tokens", tokens);
  b.value("tokenizer.ggml.token_type", 9, array_of(5, type.size(), raw(type)));
  b.value_text_array("tokenizer.ggml.merges", merges);
  b.value_u32("tokenizer.ggml.bos_token_id", 1);
  b.value_u32("tokenizer.ggml.eos_token_id", 2);
  return b;
}

std::shared_ptr<const Tokenizer> from_gguf(const GgufBuilder& b) {
  TempDir dir;
  write_file(dir / "m.gguf", b.bytes());
  return load_tokenizer(dir / "m.gguf");
}

}  // namespace

TEST_CASE("ids are those of the reference for every split rule and text") {
  const auto& texts = text_golden().at("texts");
  for (const auto& entry : text_golden().at("byte_level")) {
    const auto name = entry.at("name").get<std::string>();
    const auto tokenizer = from_json(entry.at("json"));
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(name);
      CAPTURE(text);
      const auto& want = entry.at("cases")[i];
      const auto plain = tokenizer->encode(text, kPlain);
      CHECK(ids_text(plain) == ids_text(want.at("plain").get<std::vector<int32_t>>()));
      CHECK(ids_text(tokenizer->encode(text)) == ids_text(want.at("special").get<std::vector<int32_t>>()));
      CHECK(ids_text(tokenizer->encode(text, kParsed)) == ids_text(want.at("parsed").get<std::vector<int32_t>>()));
      // Normalisation, added spaces, stripping tokens and left-out bytes change the text; nothing else does.
      if (name != "qwen2" && name != "prefix_space" && tokenizer->unencodable(text) == 0) {
        CHECK(tokenizer->decode(plain) == text);
      }
    }
  }
}

TEST_CASE("a vocabulary in a GGUF file gives the ids of its tokenizer.json") {
  const auto& texts = text_golden().at("texts");
  for (const auto& [name, pre] : {std::pair("smollm", "smollm"), std::pair("llama3", "llama-bpe"),
                                  std::pair("gpt2", "gpt-2"), std::pair("llama3", "llama3")}) {
    const auto& entry = golden_entry("byte_level", name);
    const auto tokenizer = from_gguf(gguf_of(entry.at("json"), pre));
    CHECK(tokenizer->eos_id() == 2);
    CHECK(tokenizer->bos_id() == 1);
    CHECK(tokenizer->adds_bos() == (std::string_view(name) == "llama3"));
    CHECK(tokenizer->token_id("<|im_end|>") == 2);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(text);
      CHECK(ids_text(tokenizer->encode(text, kPlain)) ==
            ids_text(entry.at("cases")[i].at("plain").get<std::vector<int32_t>>()));
      CHECK(ids_text(tokenizer->encode(text, kParsed)) ==
            ids_text(entry.at("cases")[i].at("parsed").get<std::vector<int32_t>>()));
    }
    // The files that it writes are the same tokenizer.
    TempDir dir;
    for (const auto& [file, content] : tokenizer->files()) write_file(dir / file, content);
    const auto again = load_tokenizer(dir.path());
    CHECK(again->eos_id() == 2);
    CHECK(again->adds_bos() == tokenizer->adds_bos());
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    for (const auto& text : texts) {
      CHECK(again->encode(text.get<std::string>()) == tokenizer->encode(text.get<std::string>()));
      CHECK(again->encode(text.get<std::string>(), kParsed) == tokenizer->encode(text.get<std::string>(), kParsed));
    }
  }
}

TEST_CASE("GGUF: qwen2 normalises, BOS and EOS follow the file") {
  const auto& j = golden_json("qwen2");
  const auto tokenizer = from_gguf(gguf_of(j, "qwen2"));
  CHECK(tokenizer->encode("e\u0301") == tokenizer->encode("\u00e9"));
  auto b = gguf_of(j, "qwen2");
  b.value("tokenizer.ggml.add_bos_token", 7, std::string(1, '\1'));
  b.value("tokenizer.ggml.add_eos_token", 7, std::string(1, '\1'));
  const auto both = from_gguf(b);
  CHECK(both->adds_bos());
  CHECK(both->adds_eos());
  const auto ids = both->encode("a");
  REQUIRE(ids.size() == 3);
  CHECK(ids.front() == 1);
  CHECK(ids.back() == 2);
}

TEST_CASE("GGUF: what is refused") {
  const auto& j = golden_json("smollm");
  CHECK(contains(error_of([&] { from_gguf(gguf_of(j, nullptr)); }), "no tokenizer.ggml.pre"));
  const auto unknown = error_of([&] { from_gguf(gguf_of(j, "martian")); });
  CHECK(contains(unknown, "'martian'"));
  CHECK(contains(unknown, "smollm"));
  CHECK(contains(error_of([&] { from_gguf(gguf_of(j, "default")); }), "'default'"));
  {
    GgufBuilder b;
    b.value_text("tokenizer.ggml.model", "bert");
    CHECK(contains(error_of([&] { from_gguf(b); }), "'bert'"));
    CHECK(contains(error_of([&] { from_gguf(GgufBuilder()); }), "no vocabulary"));
  }
  {
    auto b = gguf_of(j, "smollm");
    b.value("tokenizer.ggml.unknown_token_id", 4, raw(uint32_t{1u << 30}));
    CHECK(contains(error_of([&] { from_gguf(b); }), "unknown_token_id"));
  }
  {
    GgufBuilder b;
    b.value_text("tokenizer.ggml.model", "gpt2");
    b.value_text("tokenizer.ggml.pre", "smollm");
    b.value_text_array("tokenizer.ggml.tokens", {"a", "b"});
    b.value_text_array("tokenizer.ggml.merges", {"a", "b"});
    CHECK(contains(error_of([&] { from_gguf(b); }), "merge 0"));
  }
}

TEST_CASE("decode(encode(x)) == x on random UTF-8 and on random bytes") {
  RandomText random(7);
  for (const char* name : {"smollm", "llama3", "gpt2", "literal"}) {
    const auto tokenizer = from_json(golden_json(name));
    for (int i = 0; i < 300; ++i) {
      const std::string text = i % 3 == 0 ? random.bytes(random.next() % 40) : random.utf8(random.next() % 60);
      CAPTURE(name);
      CAPTURE(i);
      CHECK(tokenizer->decode(tokenizer->encode(text, kPlain)) == text);
      CHECK(tokenizer->unencodable(text) == 0);
    }
  }
}

TEST_CASE("bytes that are not UTF-8 stay bytes and do not change their neighbours") {
  const auto tokenizer = from_json(golden_json("qwen2"));
  const std::string bad = "the river \xFF\xC0 e\xCC\x81\xE2\x82";
  const auto ids = tokenizer->encode(bad, kPlain);
  CHECK(tokenizer->decode(ids) == "the river \xFF\xC0 \xC3\xA9\xE2\x82");
}

TEST_CASE("bytes without a token are counted") {
  const auto tokenizer = from_json(golden_json("few_bytes"));
  CHECK(tokenizer->unencodable("river") == 0);
  CHECK(tokenizer->unencodable("a\x01\x02") == 2);
  CHECK(tokenizer->decode(tokenizer->encode("a\x01\x02", kPlain)) == "a");
}

TEST_CASE("control tokens are text unless asked for, and leave no trace in decoded text") {
  const auto tokenizer = from_json(golden_json("smollm"));
  const std::string text = "<|im_start|>user<|im_end|>";
  const auto plain = tokenizer->encode(text, kPlain), parsed = tokenizer->encode(text, kParsed);
  CHECK(plain.size() > 4);
  CHECK(std::count(plain.begin(), plain.end(), 1) == 0);
  CHECK(parsed.front() == 1);
  CHECK(parsed.back() == 2);
  CHECK(tokenizer->decode(parsed) == "user");
  CHECK(tokenizer->decode(parsed, false) == text);
  CHECK(tokenizer->decode(plain) == text);
  CHECK(tokenizer->decode(std::vector<int32_t>{-1, 1 << 20}) == "\uFFFD\uFFFD");
}

TEST_CASE("tokenizer_config.json names BOS and EOS, and says openly whether they are added") {
  const json names = {{"bos_token", "<|im_start|>"}, {"eos_token", {{"content", "<|im_end|>"}}}};
  const auto by_template = from_json(golden_json("llama3"), names);
  CHECK(by_template->adds_bos());
  CHECK(by_template->adds_eos());
  CHECK(by_template->eos_id() == 2);
  json off = names;
  off["add_bos_token"] = false;
  const auto without = from_json(golden_json("llama3"), off);
  CHECK_FALSE(without->adds_bos());
  CHECK_FALSE(without->adds_eos());
  CHECK(without->encode("the") == without->encode("the", kPlain));
  json on = names;
  on["add_bos_token"] = true;
  const auto with = from_json(golden_json("smollm"), on);
  CHECK(with->encode("the").front() == 1);
  CHECK(contains(error_of([&] { from_json(golden_json("smollm"), {{"eos_token", "<nowhere>"}}); }), "<nowhere>"));
  CHECK(contains(error_of([&] { from_json(golden_json("smollm"), {{"add_bos_token", true}}); }), "no bos_token"));
  CHECK(contains(error_of([&] { from_json(golden_json("smollm"), {{"eos_token", 7}}); }), "eos_token"));
}

TEST_CASE("tokens of tokenizer_config.json alone are known too") {
  const json config = {{"added_tokens_decoder", {{"900", {{"content", "<extra>"}, {"special", true}}}}},
                       {"eos_token", "<extra>"}};
  const auto tokenizer = from_json(golden_json("smollm"), config);
  CHECK(tokenizer->eos_id() == 900);
  CHECK(tokenizer->vocab_size() == 901);
  CHECK(tokenizer->encode("a<extra>", kParsed).back() == 900);
  const json other = {{"added_tokens_decoder", {{"1", {{"content", "<other>"}, {"special", true}}}}}};
  CHECK(contains(error_of([&] { from_json(golden_json("smollm"), other); }), "<other>"));
}

TEST_CASE("a folder carries its own files") {
  const json config = {{"eos_token", "<|im_end|>"}};
  const auto files = from_json(golden_json("smollm"), config)->files();
  REQUIRE(files.size() == 2);
  CHECK(files[0].first == "tokenizer.json");
  CHECK(files[0].second == golden_json("smollm").dump());
  CHECK(files[1].second == config.dump());
}

TEST_CASE("tokenizer.json: what is not done is refused by name") {
  const auto has = [](const std::string& message, const char* part) {
    CAPTURE(message);
    CHECK(contains(message, part));
  };
  has(refusal("llama3", [](json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "(a"}}; }), "(a");
  has(refusal("llama3",
              [](json& j) {
                j["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "\\hx"}};
              }),
      "\\h");
  has(refusal("smollm", [](json& j) { j["decoder"] = {{"type", "WordPiece"}}; }), "WordPiece");
  has(refusal("smollm", [](json& j) { j["model"]["merges"] = json::array(); }), "merges");
  has(refusal("smollm", [](json& j) { j["model"]["merges"][3] = "abc"; }), "merge 3");
  has(refusal("smollm", [](json& j) { j["model"]["merges"][3] = {"a"}; }), "merges[3]");
  has(refusal("smollm", [](json& j) { j["model"]["merges"][3] = "qqqq zzzz"; }), "qqqq");
  has(refusal("smollm", [](json& j) { j["model"]["dropout"] = 0.1; }), "dropout");
  has(refusal("smollm", [](json& j) { j["model"]["vocab"]["a"] = -1; }), "'a'");
  has(refusal("smollm", [](json& j) { j["model"]["vocab"]["a"] = 1u << 31; }), "'a'");
  has(refusal("smollm", [](json& j) { j["model"]["vocab"]["a"] = j["model"]["vocab"]["b"]; }), "is both");
  has(refusal("smollm", [](json& j) { j["added_tokens"][0]["id"] = 5; }), "<|endoftext|>");
  has(refusal("smollm", [](json& j) { j["model"] = 3; }), "not a tokenizer.json");
  has(refusal("llama3", [](json& j) { j["post_processor"]["special_tokens"] = json::object(); }), "without ids");
  has(refusal("llama3", [](json& j) { j["post_processor"]["special_tokens"]["<|im_end|>"]["ids"] = {70000}; }),
      "70000");
  {
    TempDir dir;
    write_file(dir / "tokenizer.json", "{\"a\": ");
    has(error_of([&] { load_tokenizer(dir.path()); }), "not valid JSON");
    write_file(dir / "tokenizer.json", std::string(100000, '['));
    has(error_of([&] { load_tokenizer(dir.path()); }), "nested deeper");
    write_file(dir / "tokenizer.json", "version https://git-lfs.github.com/spec/v1\n");
    has(error_of([&] { load_tokenizer(dir.path()); }), "LFS");
    has(error_of([&] { load_tokenizer(dir / "nothing"); }), "no such file");
    has(error_of([&] { load_tokenizer(dir / "tokenizer.json"); }), "expected a model folder");
    TempDir empty;
    has(error_of([&] { load_tokenizer(empty.path()); }), "no tokenizer.json");
  }
}

TEST_CASE("long words merge as short ones do") {
  // A table in which every order matters: the queue and the plain loop must take the same pairs.
  BpeMerges merges(200);
  int32_t rank = 0, next = 8;
  RandomText random(3);
  for (int i = 0; i < 120; ++i) {
    merges.add(static_cast<int32_t>(random.next() % static_cast<uint32_t>(next)),
               static_cast<int32_t>(random.next() % static_cast<uint32_t>(next)), {rank++, next});
    ++next;
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> ids(40 + random.next() % 60), want;
    for (auto& id : ids) id = static_cast<int32_t>(random.next() % 8);
    want = ids;
    for (;;) {  // the definition
      size_t best = want.size();
      int32_t lowest = 1 << 30, result = 0;
      for (size_t i = 0; i + 1 < want.size(); ++i) {
        const auto m = merges.find(want[i], want[i + 1]);
        if (m.rank >= 0 && m.rank < lowest) best = i, lowest = m.rank, result = m.result;
      }
      if (best == want.size()) break;
      want[best] = result;
      want.erase(want.begin() + static_cast<int64_t>(best) + 1);
    }
    ids.resize(merges.apply(ids.data(), ids.size()));
    CHECK(ids == want);
  }
}

TEST_CASE("a long word takes near-linear time, from several threads too") {
  const auto tokenizer = from_json(golden_json("gpt2"));
  const std::string word(1 << 20, 'e');
  const auto want = tokenizer->encode(word, kPlain);
  CHECK(tokenizer->decode(want) == word);
  std::vector<std::vector<int32_t>> got(3);
  std::vector<std::thread> threads;
  for (auto& g : got) threads.emplace_back([&] { g = tokenizer->encode(word, kPlain); });
  for (auto& t : threads) t.join();
  for (const auto& g : got) CHECK(g == want);
}

TEST_CASE("the byte alphabet goes there and back") {
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  CHECK(alphabet_to_bytes(bytes_to_alphabet(all)) == all);
  CHECK(bytes_to_alphabet(" \n") == "\u0120\u010A");
  CHECK(bytes_to_alphabet("\xAD") == "\u0143");
  CHECK_FALSE(alphabet_to_bytes("\u2581").has_value());
}
