// SPDX-License-Identifier: Apache-2.0
// The bytes of the text that each token stands for, and stretches of a text in which control tokens are plain text.
#include <doctest/doctest.h>

#include <algorithm>

#include "finetune/text/tokenizer.h"
#include "finetune/text/utf8.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;

namespace {

std::shared_ptr<const Tokenizer> load_pipeline(std::string_view name) {
  return load_json(pipeline_file(pipeline_case(name)));
}

std::shared_ptr<const Tokenizer> load_sentencepiece(std::string_view name) {
  TempDir dir;
  write_file(dir / "tokenizer.model", from_base64(golden_entry("sentencepiece", name).at("model").get<std::string>()));
  return load_tokenizer(dir.path());
}

const json& span_golden() {
  static const json j = json::parse(read_file(std::filesystem::path(BANTAM_TESTS_DIR) / "golden" / "span_golden.json"));
  return j;
}

struct Named {
  std::string name;
  std::shared_ptr<const Tokenizer> tokenizer;
};

// Every vocabulary of the golden files.
const std::vector<Named>& all_tokenizers() {
  static const std::vector<Named> list = [] {
    std::vector<Named> out;
    for (const auto& c : pipeline_golden().at("cases")) {
      out.push_back({c.at("name").get<std::string>(), load_json(pipeline_file(c))});
    }
    for (const char* name : {"llama", "rules", "unigram"}) {
      out.push_back({str("sentencepiece ", name), load_sentencepiece(name)});
    }
    const auto& t = pipeline_golden().at("tiktoken");
    TempDir dir;
    write_file(dir / "x.tiktoken", t.at("file").get<std::string>());
    write_file(dir / "tiktoken.json", t.at("beside").dump());
    out.push_back({"tiktoken", load_tokenizer(dir.path())});
    return out;
  }();
  return list;
}

// One token for each byte, whatever is around it: what no rule changes on the way.
bool keeps_bytes(const std::string& name) {
  return name == "bytes" || name == "bytes_llama3" || name == "bytes_deepseek" || name == "tiktoken";
}

std::string spans_text(std::span<const TextSpan> spans) {
  std::string out;
  for (const TextSpan s : spans) out += str(out.empty() ? "" : " ", s.begin, "-", s.end);
  return out;
}

// What holds for every vocabulary and text.
void check_encoding(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const Encoding e = tokenizer.encode_with_spans(text, options);
  CHECK(e.ids == tokenizer.encode(text, options));
  REQUIRE(e.ids.size() == e.spans.size());
  for (size_t i = 0; i < e.spans.size(); ++i) {
    CHECK(e.spans[i].begin <= e.spans[i].end);
    CHECK(e.spans[i].end <= text.size());
    if (i > 0) CHECK(e.spans[i - 1].begin <= e.spans[i].begin);
    if (!options.add_special) CHECK(e.spans[i].begin < e.spans[i].end);
  }
}

// Text with control tokens, parts of them, spaces and any bytes.
std::string random_text(RandomText& random) {
  static const std::string kParts[] = {"<s>",     "</s>",   "<a<tool>", "<tool>", "<trim>", "<right> ",
                                       "  ",      "word",   "Day",      "<",      "s>",     "the ",
                                       "e\u0301", "\uFB01", "<unk>",    "\u2581", "\n\n"};
  std::string out;
  for (uint32_t n = random.next() % 9; n > 0; --n) {
    const uint32_t kind = random.next() % 8;
    out += kind < 5   ? kParts[random.next() % std::size(kParts)]
           : kind < 7 ? random.utf8(random.next() % 6)
                      : random.bytes(random.next() % 4);
  }
  return out;
}

std::vector<TextSpan> random_spans(RandomText& random, size_t size) {
  std::vector<TextSpan> out;
  for (size_t at = 0; at < size;) {
    const size_t begin = at + random.next() % 6, end = std::min<size_t>(size, begin + random.next() % 8);
    if (begin >= end) break;
    out.push_back({begin, end});
    at = end;
  }
  return out;
}

std::vector<int32_t> specials_of(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<int32_t> out;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(out), [&](int32_t id) { return tokenizer.is_special(id); });
  return out;
}

}  // namespace

TEST_CASE("spans come with the ids of encode(), in order and within the text") {
  const auto& texts = pipeline_golden().at("texts");
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    CAPTURE(name);
    for (const auto& t : texts) {
      const auto text = t.get<std::string>();
      CAPTURE(text);
      check_encoding(*tokenizer, text, kPlain);
      check_encoding(*tokenizer, text, kParsed);
      check_encoding(*tokenizer, text, {.add_special = true, .parse_special = true});
    }
    RandomText random(7);
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_text(random);
      const auto plain = random_spans(random, text.size());
      CAPTURE(printable(text));
      check_encoding(*tokenizer, text, kPlain);
      check_encoding(*tokenizer, text, {.add_special = false, .parse_special = true, .plain = plain});
    }
  }
}

TEST_CASE("spans are the reference's offsets") {
  // HF tokenizers count whole characters, so ours are widened to them. Where a rule makes one character of several, or
  // turns the order round, theirs have a part of it and ours all; for bytes of several unknown characters theirs have
  // all and ours the one.
  static const std::vector<std::string> kLarger = {"bytes_prefix", "some_bytes", "some_bytes_fused", "lower",
                                                   "nfkc",         "nfkd_nmt",   "nfc_strip",        "strip_right",
                                                   "precompiled",  "unigram"};
  // Where characters are left out, theirs lag behind; what an expression puts in, theirs give to the character before.
  static const std::vector<std::string> kOther = {"no_unk", "strip_both"};
  const auto among = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  const json& golden = span_golden();
  const auto& chosen = golden.at("texts");
  size_t same = 0, larger = 0, smaller = 0;
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    if (!golden.at("spans").contains(name) || among(kOther, name)) continue;
    CAPTURE(name);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const auto text = pipeline_golden().at("texts")[chosen[i].get<size_t>()].get<std::string>();
      CAPTURE(text);
      const auto numbers = golden.at("spans").at(name)[i].get<std::vector<int64_t>>();
      std::vector<TextSpan> theirs;
      if (!numbers.empty() && numbers[0] < 0) {
        for (size_t k = 1; k + 1 < numbers.size(); k += 2) {
          theirs.push_back({static_cast<size_t>(numbers[k]), static_cast<size_t>(numbers[k + 1])});
        }
      } else {
        size_t begin = 0;
        for (const int64_t end : numbers) {
          theirs.push_back({begin, static_cast<size_t>(end)});
          begin = static_cast<size_t>(end);
        }
      }
      auto ours = tokenizer->encode_with_spans(text, kParsed).spans;
      for (TextSpan& s : ours) {
        while (s.begin > 0 && (static_cast<uint8_t>(text[s.begin]) & 0xC0) == 0x80) --s.begin;
        while (s.end < text.size() && (static_cast<uint8_t>(text[s.end]) & 0xC0) == 0x80) ++s.end;
      }
      CAPTURE(spans_text(ours));
      CAPTURE(spans_text(theirs));
      REQUIRE(ours.size() == theirs.size());
      for (size_t k = 0; k < ours.size(); ++k) {
        const TextSpan a = ours[k], b = theirs[k];
        if (a == b) {
          ++same;
        } else if (among(kLarger, name)) {
          ++larger;
          CHECK((a.begin <= b.begin && a.end >= b.end));
        } else if (name == "unigram_bytes") {
          ++smaller;
          CHECK((a.begin >= b.begin && a.end <= b.end));
        } else {
          CHECK(spans_text({&a, 1}) == spans_text({&b, 1}));
        }
      }
    }
  }
  CHECK(same > 10000);
  CHECK(larger == 72);
  CHECK(smaller == 249);
}

TEST_CASE("byte-level: the spans are the text, cut") {
  RandomText random(3);
  std::vector<std::string> texts;
  for (const auto& t : pipeline_golden().at("texts")) texts.push_back(t.get<std::string>());
  for (int i = 0; i < 300; ++i) texts.push_back(random_text(random));
  texts.push_back(random.utf8(3000));
  texts.push_back(std::string(500, 'a') + std::string(500, '\n') + "\xF0\x9F\x98");
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    if (!keeps_bytes(name)) continue;
    CAPTURE(name);
    for (const std::string& text : texts) {
      CAPTURE(printable(text));
      const Encoding e = tokenizer->encode_with_spans(text, kPlain);
      size_t at = 0;
      for (size_t i = 0; i < e.ids.size(); ++i) {
        REQUIRE(e.spans[i].begin == at);
        at = e.spans[i].end;
        // Tokens that strip take white space with them; the others are the bytes of their span.
        const std::string own = tokenizer->decode(std::span(e.ids).subspan(i, 1), false);
        const std::string there = text.substr(e.spans[i].begin, at - e.spans[i].begin);
        CHECK((own == "<trim>" ? there.find(own) != std::string::npos : own == there));
      }
      CHECK(at == text.size());
    }
  }
}

TEST_CASE("all of a text is covered where nothing is taken away") {
  // Cases whose rules remove characters or white space.
  static const std::vector<std::string> kRemoving = {"unk",
                                                     "unk_fused",
                                                     "no_unk",
                                                     "some_bytes",
                                                     "affixes",
                                                     "lower",
                                                     "nfkd_nmt",
                                                     "nfc_strip",
                                                     "strip_right",
                                                     "strip_both",
                                                     "precompiled",
                                                     "removed",
                                                     "removed_inverted",
                                                     "delimiter",
                                                     "punctuation",
                                                     "metaspace_first",
                                                     "unigram_words",
                                                     "sentencepiece rules",
                                                     "sentencepiece unigram"};
  RandomText random(5);
  std::vector<std::string> texts;
  for (const auto& t : pipeline_golden().at("texts")) texts.push_back(t.get<std::string>());
  for (int i = 0; i < 200; ++i) texts.push_back(random_text(random));
  size_t compared = 0;
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    if (std::find(kRemoving.begin(), kRemoving.end(), name) != kRemoving.end()) continue;
    CAPTURE(name);
    ++compared;
    for (const std::string& text : texts) {
      CAPTURE(printable(text));
      const Encoding e = tokenizer->encode_with_spans(text, kParsed);
      CAPTURE(spans_text(e.spans));
      size_t covered = 0;
      for (const TextSpan s : e.spans) {
        CHECK(s.begin <= covered);
        covered = std::max(covered, s.end);
      }
      CHECK(covered == text.size());
    }
  }
  CHECK(compared > 25);
}

TEST_CASE("plain spans: over everything they are parse_special off, over nothing they are not there") {
  RandomText random(13);
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    CAPTURE(name);
    for (int i = 0; i < 200; ++i) {
      const std::string text = random_text(random);
      CAPTURE(printable(text));
      const TextSpan all[] = {{0, text.size()}};
      const std::vector<TextSpan> nothing = {{0, 0}, {text.size() / 2, text.size() / 2}};
      const size_t cut = text.empty() ? 0 : random.next() % text.size();
      const TextSpan touching[] = {{0, cut}, {cut, text.size()}};
      const auto plain = tokenizer->encode(text, kPlain);
      CHECK(tokenizer->encode(text, {.add_special = false, .parse_special = true, .plain = all}) == plain);
      CHECK(tokenizer->encode(text, {.add_special = false, .parse_special = true, .plain = touching}) == plain);
      CHECK(tokenizer->encode(text, {.add_special = false, .parse_special = true, .plain = nothing}) ==
            tokenizer->encode(text, kParsed));
      const auto some = random_spans(random, text.size());
      CHECK(tokenizer->encode(text, {.add_special = false, .parse_special = false, .plain = some}) == plain);
      const auto e = tokenizer->encode_with_spans(text, {.add_special = false, .parse_special = true, .plain = some});
      for (size_t k = 0; k < e.ids.size(); ++k) {
        const std::string own = tokenizer->piece(e.ids[k]);
        if (!tokenizer->is_special(e.ids[k]) || own == "<unk>") continue;
        // The token's own text, without the white space that it took.
        const size_t at = text.find(own, e.spans[k].begin);
        REQUIRE(at < e.spans[k].end);
        for (const TextSpan s : some) CHECK((s.end <= at || s.begin >= at + own.size()));
      }
    }
  }
}

TEST_CASE("text between plain spans is read on its own") {
  const auto tokenizer = load_pipeline("bytes");
  const auto encode = [&](const std::string& text, std::vector<TextSpan> plain) {
    return specials_of(*tokenizer,
                       tokenizer->encode(text, {.add_special = false, .parse_special = true, .plain = plain}));
  };
  const int32_t long_one = tokenizer->token_id("<a<tool>");
  REQUIRE(tokenizer->is_special(long_one));
  // A typed end of turn does not end the turn; the template's own does.
  CHECK(encode("<s>hi</s>hi</s>", {{3, 11}}) == std::vector<int32_t>{1, 2});
  CHECK(encode("<s>hi</s>hi</s>", {}) == std::vector<int32_t>{1, 2, 2});
  // One byte is enough, the first or the last.
  CHECK(encode("<s></s>", {{0, 1}}) == std::vector<int32_t>{2});
  CHECK(encode("<s></s>", {{2, 3}}) == std::vector<int32_t>{2});
  CHECK(encode("<s></s>", {{2, 4}}) == std::vector<int32_t>{});
  // Text completed by plain text makes no token; nor does plain text completed by the template's.
  CHECK(encode("<s>", {{1, 3}}) == std::vector<int32_t>{});
  CHECK(encode("<a<tool>", {{2, 8}}) == std::vector<int32_t>{});
  CHECK(encode("<a<tool>", {}) == std::vector<int32_t>{long_one});
  // A token that would reach from plain text over the template's hides nothing of it: <tool> is found.
  const auto ids = tokenizer->encode(
      "<a<tool>", {.add_special = false, .parse_special = true, .plain = std::vector<TextSpan>{{0, 2}}});
  CHECK(ids.back() == tokenizer->token_id("<tool>"));
  CHECK(ids.size() == 3);
  CHECK(contains(error_of([&] { encode("<s></s>", {{3, 4}, {0, 1}}); }), "out of order"));
}

TEST_CASE("a control token that would reach into plain text gives way to shorter ones") {
  json j = pipeline_file(pipeline_case("bytes"));
  for (auto& t : j["added_tokens"]) {
    if (t["content"] == "<right>") t["content"] = "<s></s>", t["rstrip"] = false;
    if (t["content"] == "<trim>") t["content"] = "<s></s>w", t["rstrip"] = t["lstrip"] = false;
    if (t["content"] == "word") t["content"] = "></", t["single_word"] = false;
  }
  const auto tokenizer = load_json(j);
  const int32_t both = tokenizer->token_id("<s></s>"), longer = tokenizer->token_id("<s></s>w");
  const auto encode = [&](const std::string& text, std::vector<TextSpan> plain) {
    auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = true, .plain = plain});
    std::erase_if(ids, [&](int32_t id) { return id != longer && !tokenizer->is_special(id); });
    return ids;
  };
  CHECK(encode("<s></s>", {}) == std::vector<int32_t>{both});
  CHECK(encode("<s></s>", {{3, 7}}) == std::vector<int32_t>{1});
  CHECK(encode("<s></s>", {{0, 3}}) == std::vector<int32_t>{2});
  CHECK(encode("<s></s>", {{0, 7}}) == std::vector<int32_t>{});
  CHECK(encode("<s></s>", {{0, 4}, {4, 7}}) == std::vector<int32_t>{});
  // Spans that touch are one: what is found in them stays text as a whole, and "></" is not looked for in it.
  const std::vector<TextSpan> touching = {{0, 2}, {2, 7}};
  CHECK(tokenizer->encode("<s></s>", {.add_special = false, .parse_special = true, .plain = touching}) ==
        tokenizer->encode("<s></s>", kPlain));
  // What is not special is found as ever, the longest first.
  CHECK(encode("<s></s>w", {{0, 3}}) == std::vector<int32_t>{longer});
  CHECK(encode("<s></s>w", {{0, 8}}) == std::vector<int32_t>{longer});
}

TEST_CASE("plain spans where control tokens are looked for in normalised text") {
  json j = pipeline_file(pipeline_case("lower"));
  for (auto& t : j["added_tokens"]) {
    if (t["content"] == "<right>") t["content"] = "<R\u00cfght>", t["normalized"] = true, t["rstrip"] = false;
  }
  const auto tokenizer = load_json(j);
  const int32_t id = tokenizer->token_id("<R\u00cfght>");
  CHECK(tokenizer->piece(id) == "<R\u00cfght>");
  const std::string text = "\u00e9\u00e9<RI\u0308GHT>\u00c9<right>the";
  const auto count = [&](std::vector<TextSpan> plain) {
    const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = true, .plain = plain});
    return std::count(ids.begin(), ids.end(), id);
  };
  const size_t first = text.find("<RI"), second = text.find("<right>");
  CHECK(count({}) == 2);
  CHECK(count({{0, first}}) == 2);
  CHECK(count({{0, first + 1}}) == 1);
  CHECK(count({{first + 8, first + 9}}) == 1);
  CHECK(count({{first + 9, second}}) == 2);
  CHECK(count({{second, second + 1}}) == 1);
  CHECK(count({{first + 3, second + 3}}) == 0);
  const auto e = tokenizer->encode_with_spans(text, kParsed);
  const auto at = static_cast<size_t>(std::find(e.ids.begin(), e.ids.end(), id) - e.ids.begin());
  CHECK(e.spans.at(at) == TextSpan{first, first + 9});
}

TEST_CASE("BOS and EOS that were added stand for nothing") {
  const auto tokenizer = load_pipeline("bytes_prefix");
  const auto e = tokenizer->encode_with_spans("the <s>", {.add_special = true, .parse_special = true});
  REQUIRE(e.ids.size() > 3);
  CHECK(e.spans.front() == TextSpan{0, 0});
  CHECK(e.spans.back() == TextSpan{7, 7});
  CHECK(e.spans[e.spans.size() - 2] == TextSpan{4, 7});
  CHECK(e.ids[e.ids.size() - 2] == 1);
  const auto none = tokenizer->encode_with_spans("", {});
  CHECK(none.ids.size() == 2);
  CHECK(spans_text(none.spans) == "0-0 0-0");
}

TEST_CASE("through normalisers and byte fallback") {
  const auto spans = [](const char* name, std::string_view text) {
    return spans_text(load_pipeline(name)->encode_with_spans(text, kParsed).spans);
  };
  // A space that was put in stands for what follows; bytes of a character are known one by one.
  CHECK(spans("llama2", "\U00012000") == "0-4 0-1 1-2 2-3 3-4");
  CHECK(spans("llama2", "<s>\U00012000 x").starts_with("0-3 3-7 3-4 4-5 5-6 6-7"));
  // Bytes that are not UTF-8 are shown as U+FFFD, of which each byte stands for what it replaces.
  CHECK(spans("llama2", "\xE2\x82 ").starts_with("0-2 0-2 0-2 0-2 2-3"));
  // Composed of two characters: both; what only shares the word is not touched.
  const auto lower = load_pipeline("lower");
  const auto e = lower->encode_with_spans("x\u00c9X", kParsed);
  CHECK(e.spans.front().begin == 0);
  CHECK(e.spans.back().end == 4);
  const auto sp = load_sentencepiece("llama");
  const auto bytes = sp->encode_with_spans("a\U00012000", kParsed);
  REQUIRE(bytes.spans.size() >= 4);
  CHECK(spans_text(std::span(bytes.spans).last(4)) == "1-2 2-3 3-4 4-5");
  const auto bad = sp->encode_with_spans("\xFF", kParsed);
  for (const TextSpan s : bad.spans) CHECK(s == TextSpan{0, 1});
}

TEST_CASE("what a rule puts in, takes away or leaves out") {
  const auto spans = [](const char* name, std::string_view text) {
    return spans_text(load_pipeline(name)->encode_with_spans(text, kParsed).spans);
  };
  // "the" became "a\u2581b", and a "-" was put before each character and behind the last.
  CHECK(spans("strip_both", " the ") == "1-4 1-4 1-4 1-4 1-4 1-4 1-4");
  CHECK(spans("strip_both", " o\u00e9 ").starts_with("1-2 1-2 2-4 2-4"));
  // Characters without a token and without an unknown token are in no span.
  CHECK(spans("no_unk", "THE DOG") == "0-1 6-7");
  // White space that a pattern takes away too.
  CHECK(spans("strip_right", "a \n b  ") == "0-1 1-5");
}

TEST_CASE("text is cut where the script changes") {
  const json& golden = span_golden().at("scripts");
  const auto tokenizer = load_json(pipeline_file(golden));
  std::vector<std::string> texts = golden.at("texts");
  for (const auto& t : pipeline_golden().at("texts")) texts.push_back(t.get<std::string>());
  REQUIRE(texts.size() == golden.at("ids").size());
  for (size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(texts[i]);
    CHECK(ids_text(tokenizer->encode(texts[i], kParsed)) == ids_text(golden.at("ids")[i].get<std::vector<int32_t>>()));
    check_encoding(*tokenizer, texts[i], kParsed);
  }
  // White space in front is taken away; the space that each piece gets stands for its first character.
  const auto e = tokenizer->encode_with_spans("  \u0416the", kParsed);
  CHECK(spans_text(e.spans) == "2-3 3-4 4-7");
  CHECK(tokenizer->encode("   ", kParsed).empty());
}

TEST_CASE("pieces are shown as the vocabulary writes them") {
  const auto bytes = load_pipeline("bytes");
  CHECK(bytes->piece(bytes->encode(" the", kPlain)[0]) == "\u0120the");
  CHECK(bytes->piece(1) == "<s>");
  CHECK(bytes->piece(bytes->token_id("<tool>")) == "<tool>");
  CHECK(bytes->piece(bytes->token_id("Cafe\u0301X")) == "Cafe\u0301X");
  CHECK(bytes->piece(-1).empty());
  CHECK(bytes->piece(bytes->vocab_size()).empty());
  CHECK(bytes->is_special(1));
  CHECK(bytes->is_special(bytes->token_id("<right>")));
  CHECK_FALSE(bytes->is_special(bytes->token_id("<tool>")));
  CHECK_FALSE(bytes->is_special(bytes->vocab_size()));
  CHECK_FALSE(bytes->is_special(-1));
  const auto sp = load_sentencepiece("llama");
  CHECK(sp->piece(1) == "<s>");
  CHECK(sp->is_special(1));
  CHECK(sp->is_special(0));
  CHECK(sp->piece(sp->token_id("<0x0A>")) == "<0x0A>");
  CHECK_FALSE(sp->is_special(sp->token_id("<0x0A>")));
  CHECK(sp->piece(sp->encode("the", kPlain)[0]).starts_with("\u2581"));
  CHECK(sp->piece(sp->vocab_size()).empty());
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    CAPTURE(name);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const std::string piece = tokenizer->piece(id);
      if (!piece.empty()) CHECK(tokenizer->token_id(piece) == id);
    }
  }
}
