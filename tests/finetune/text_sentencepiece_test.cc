// SPDX-License-Identifier: Apache-2.0
// SentencePiece vocabularies against the ids of the reference implementation.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "finetune/text/sentencepiece_proto.h"
#include "finetune/text/tokenizer.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

std::string golden_model(std::string_view name) {
  return from_base64(golden_entry("sentencepiece", name).at("model").get<std::string>());
}

std::shared_ptr<const Tokenizer> from_model(const std::string& model, const json& config = nullptr) {
  TempDir dir;
  write_file(dir / "tokenizer.model", model);
  if (!config.is_null()) write_file(dir / "tokenizer_config.json", config.dump());
  return load_tokenizer(dir.path());
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;

  void add(const std::string& token, float score, int32_t type = 1) {
    tokens.push_back(token), scores.push_back(score), types.push_back(type);
  }
  GgufBuilder gguf() const {
    GgufBuilder b;
    b.value_text("tokenizer.ggml.model", "llama");
    b.value_text_array("tokenizer.ggml.tokens", tokens);
    b.value("tokenizer.ggml.scores", 9, array_of(6, scores.size(), raw(scores)));
    b.value("tokenizer.ggml.token_type", 9, array_of(5, types.size(), raw(types)));
    return b;
  }
};

Vocabulary small_vocabulary() {
  Vocabulary v;
  v.add("<unk>", 0, 2), v.add("<s>", 0, 3), v.add("</s>", 0, 3);
  for (int b = 0; b < 256; ++b) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    v.add(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">", 0, 6);
  }
  v.add("\u2581t", -1), v.add("he", -2), v.add("\u2581the", -3), v.add("\u2581a", -4);
  for (const char* c : {"\u2581", "t", "h", "e", "a"}) v.add(c, -10);
  v.add("[later]", 0, 2);
  return v;
}

std::shared_ptr<const Tokenizer> from_gguf(const GgufBuilder& b) {
  TempDir dir;
  write_file(dir / "m.gguf", b.bytes());
  return load_tokenizer(dir / "m.gguf");
}

}  // namespace

TEST_CASE("ids and text are those of the reference") {
  const auto& texts = text_golden().at("texts");
  for (const auto& entry : text_golden().at("sentencepiece")) {
    const auto name = entry.at("name").get<std::string>();
    const auto tokenizer = from_model(golden_model(name));
    CHECK(tokenizer->bos_id() == entry.at("bos").get<int32_t>());
    CHECK(tokenizer->eos_id() == entry.at("eos").get<int32_t>());
    CHECK(tokenizer->adds_bos());
    CHECK_FALSE(tokenizer->adds_eos());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(name);
      CAPTURE(text);
      const auto ids = tokenizer->encode(text, kPlain);
      CHECK(ids_text(ids) == ids_text(entry.at("cases")[i].at("plain").get<std::vector<int32_t>>()));
      CHECK(tokenizer->decode(ids) == entry.at("cases")[i].at("decoded").get<std::string>());
      const auto with = tokenizer->encode(text);
      REQUIRE(with.size() == ids.size() + 1);
      CHECK(with[0] == tokenizer->bos_id());
      CHECK(tokenizer->decode(with) == tokenizer->decode(ids));
    }
  }
}

TEST_CASE("with byte fallback every text comes back") {
  const auto tokenizer = from_model(golden_model("llama"));
  RandomText random(11);
  for (int i = 0; i < 200; ++i) {
    std::string text = random.utf8(random.next() % 50);
    for (size_t at; (at = text.find("\u2581")) != std::string::npos;) text.erase(at, 3);  // the sign for a space
    CAPTURE(i);
    CHECK(tokenizer->decode(tokenizer->encode(text, kPlain)) == text);
  }
  CHECK(tokenizer->decode(tokenizer->encode("a\xFF", kPlain)) == "a\uFFFD");
}

TEST_CASE("control pieces are text unless asked for") {
  const auto tokenizer = from_model(golden_model("llama"));
  const std::string text = "the<s>river</s>";
  const auto plain = tokenizer->encode(text, kPlain), parsed = tokenizer->encode(text, kParsed);
  CHECK(std::count(plain.begin(), plain.end(), 1) == 0);
  CHECK(tokenizer->decode(plain) == text);
  CHECK(std::count(parsed.begin(), parsed.end(), 1) == 1);
  CHECK(parsed.back() == 2);
  CHECK(tokenizer->token_id("<s>") == 1);
  CHECK(tokenizer->token_id("no such piece") == -1);
  CHECK(tokenizer->decode(std::vector<int32_t>{1, 2}, false) == "<s></s>");
}

TEST_CASE("text after a control token starts with a space only in the older way") {
  const std::string text = "the</s>the";
  const auto older = from_model(golden_model("llama")), newer = from_model(golden_model("llama"), {{"legacy", false}});
  const auto the = older->encode("the", kPlain);
  const auto a = older->encode(text, kParsed), b = newer->encode(text, kParsed);
  CHECK(std::vector<int32_t>(a.end() - static_cast<int64_t>(the.size()), a.end()) == the);
  CHECK(a != b);
  CHECK(newer->decode(b) == "thethe");
  CHECK(newer->encode("the", kPlain) == the);
}

TEST_CASE("settings and tokens of tokenizer_config.json") {
  const json config = {
      {"add_bos_token", false},
      {"add_eos_token", true},
      {"eos_token", "<end>"},
      {"added_tokens_decoder",
       {{"500", {{"content", "<end>"}, {"special", true}}}, {"1", {{"content", "<s>"}, {"special", true}}}}}};
  const auto tokenizer = from_model(golden_model("llama"), config);
  CHECK_FALSE(tokenizer->adds_bos());
  CHECK(tokenizer->adds_eos());
  CHECK(tokenizer->eos_id() == 500);
  CHECK(tokenizer->vocab_size() == 501);
  CHECK(tokenizer->encode("the").back() == 500);
  CHECK(tokenizer->encode("the<end>", kParsed).back() == 500);
  CHECK(tokenizer->decode(tokenizer->encode("the")) == "the");
  const json other = {{"added_tokens_decoder", {{"1", {{"content", "<begin>"}, {"special", true}}}}}};
  CHECK(contains(error_of([&] { from_model(golden_model("llama"), other); }), "<begin>"));
  CHECK(contains(error_of([&] { from_model(golden_model("llama"), {{"bos_token", "<begin>"}}); }), "<begin>"));
}

TEST_CASE("GGUF: scores decide, bytes fall back, place-holders stay out") {
  const auto tokenizer = from_gguf([] {
    auto b = small_vocabulary().gguf();
    b.value_u32("tokenizer.ggml.bos_token_id", 1);
    b.value_u32("tokenizer.ggml.eos_token_id", 2);
    return b;
  }());
  const int32_t t = tokenizer->token_id("\u2581t"), the = tokenizer->token_id("\u2581the"),
                a = tokenizer->token_id("\u2581a");
  CHECK(tokenizer->encode("the a") == std::vector<int32_t>{1, the, a});
  CHECK(tokenizer->encode("tZ", kPlain) == std::vector<int32_t>{t, 3 + 'Z'});
  CHECK(tokenizer->decode(tokenizer->encode("  the\n[later]")) == "  the\n[later]");
  const auto again = [&] {  // the files that it writes
    TempDir dir;
    for (const auto& [name, content] : tokenizer->files()) write_file(dir / name, content);
    return load_tokenizer(dir.path());
  }();
  CHECK(again->encode("the a</s>", kParsed) == tokenizer->encode("the a</s>", kParsed));
  CHECK(again->eos_id() == 2);
  CHECK(again->adds_bos());
}

TEST_CASE("GGUF: a space is put before the text as the file says") {
  auto b = small_vocabulary().gguf();
  b.value("tokenizer.ggml.add_space_prefix", 7, std::string(1, '\0'));
  const auto tokenizer = from_gguf(b);
  CHECK(tokenizer->encode("he", kPlain) == std::vector<int32_t>{tokenizer->token_id("he")});
  CHECK(tokenizer->decode(tokenizer->encode(" the", kPlain)) == " the");
  CHECK(tokenizer->adds_bos());
  CHECK(tokenizer->bos_id() == 1);
  CHECK(tokenizer->eos_id() == 2);
}

TEST_CASE("GGUF: what is refused") {
  auto v = small_vocabulary();
  v.scores.pop_back();
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "scores"));
  v = small_vocabulary();
  v.scores[7] = std::numeric_limits<float>::quiet_NaN();
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "scores[7]"));
  v = small_vocabulary();
  v.types[4] = 9;
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "token_type[4]"));
  v = small_vocabulary();
  v.types.pop_back();
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "types"));
  v = small_vocabulary();
  v.tokens[260] = v.tokens[261];
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "not a usable"));
  v = small_vocabulary();
  v.tokens[260] = "\xFF";
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "not UTF-8"));
  v = small_vocabulary();
  for (auto& type : v.types) type = type == 2 ? 1 : type;
  CHECK(contains(error_of([&] { from_gguf(v.gguf()); }), "no unknown token"));
}

TEST_CASE("damaged models give a message") {
  const std::string good = golden_model("rules");
  CHECK_NOTHROW(from_model(good));
  for (size_t n = 0; n < good.size(); n += 1 + n / 16) {
    CAPTURE(n);
    const std::string cut = good.substr(0, n);
    // A cut between two fields leaves a model with fewer pieces, which may be a usable one.
    try {
      from_model(cut)->encode("the river");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::model);
    }
  }
  CHECK(contains(error_of([&] { from_model(""); }), "no pieces"));
  CHECK(contains(error_of([&] { from_model(std::string(64, '\xFF')); }), "damaged"));
}

TEST_CASE("normalisation tables that lead outside themselves are refused") {
  const std::string good = golden_model("rules");
  RandomText random(5);
  size_t refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[bad.size() - 1 - random.next() % 3000] = static_cast<char>(random.next());
    try {
      const auto tokenizer = from_model(bad);
      tokenizer->encode("The A \uFB01 \u2028 river \u00ff");
    } catch (const Error& e) {
      CHECK((e.code() == ErrorCode::model || e.code() == ErrorCode::data));
      ++refused;
    }
  }
  CHECK(refused > 0);
}
