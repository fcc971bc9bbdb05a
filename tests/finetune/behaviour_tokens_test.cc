// SPDX-License-Identifier: Apache-2.0
// Rows to ids: BOS, EOS and control tokens, and what of a vocabulary's file shows in the samples.
#include <doctest/doctest.h>

#include "behaviour_testing.h"
#include "chat_testing.h"
#include "finetune/data/chat/chat_encoder.h"
#include "finetune/text/sentencepiece_proto.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

const std::string kChat = chat_row({{"user", "Which river?"}, {"assistant", "The long one."}});
const std::string kAsked = row_of({{"prompt", "Which river?"}, {"completion", " The long one."}});
const std::string kText = row_of({{"text", "The river is long."}});
const std::string kAlpaca = row_of({{"instruction", "Add."}, {"input", "1 2"}, {"output", "3"}});

// Of a SentencePiece vocabulary, which has no control tokens but these two.
const std::string kLlamaTurns =
    "{{ bos_token }}{%- for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + ' ' + eos_token }}"
    "{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}";

ModelFolder sentencepiece_folder(json config = {}) {
  config.update({{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  return ModelFolder::sentencepiece("llama", kLlamaTurns, config);
}

int64_t bos_of(const ModelFolder& m, const SampleView& s) {
  return std::count(s.ids.begin(), s.ids.end(), m.tokenizer->bos_id());
}

// The vocabulary of a SentencePiece model as a tokenizer.json, the way it is converted: a merge for every piece that
// two others make, in the order of the pieces' scores.
json converted(const std::string& model, const Tokenizer& tokenizer) {
  json vocab = json::object();
  std::vector<std::string> pieces;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    pieces.push_back(tokenizer.piece(id));
    vocab[pieces.back()] = id;
  }
  REQUIRE(model.size() > 0);
  json merges = json::array();
  for (const std::string& piece : pieces) {  // pieces stand in the order of their scores
    if (piece.starts_with("<0x") || piece == "<s>" || piece == "</s>" || piece == "<unk>") continue;
    std::vector<std::pair<std::pair<int, int>, std::pair<std::string, std::string>>> ways;
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const std::string left = piece.substr(0, cut), right = piece.substr(cut);
      if (vocab.contains(left) && vocab.contains(right)) {
        ways.push_back({{vocab[left].get<int>(), vocab[right].get<int>()}, {left, right}});
      }
    }
    std::sort(ways.begin(), ways.end());
    for (const auto& [order, way] : ways) merges.push_back({way.first, way.second});
  }
  json added = json::array();
  for (const char* t : {"<unk>", "<s>", "</s>"}) {
    added.push_back({{"id", vocab[t]},
                     {"content", t},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const std::string space = "\u2581";
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", space}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"pair", json::array()},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {vocab["<s>"]}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", "<unk>"},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

}  // namespace

TEST_CASE("exactly one BOS: chat text has the template's, other rows follow the tokenizer's configuration") {
  for (const bool adds : {true, false}) {
    CAPTURE(adds);
    json config = vocabulary_config();
    config["add_bos_token"] = adds;
    ModelFolder with(kTurnsWithBos, config), without(kTurns, config);
    CHECK(with.tokenizer->adds_bos() == adds);
    for (const std::string& row : {kChat, kAlpaca}) {
      const Dataset d = with.read(row), none = without.read(row);
      CHECK(bos_of(with, d.samples[0]) == 1);
      CHECK(d.samples[0].ids[0] == with.tokenizer->bos_id());
      CHECK(bos_of(without, none.samples[0]) == 0);
    }
    for (const std::string& row : {kAsked, kText}) {
      const Dataset d = with.read(row);
      CHECK(bos_of(with, d.samples[0]) == (adds ? 1 : 0));
      CHECK((d.samples[0].ids[0] == with.tokenizer->bos_id()) == adds);
    }
    // A BOS typed in a row is text.
    CHECK(bos_of(with, with.read(row_of({{"prompt", "<s>a"}, {"completion", "<s>"}})).samples[0]) == (adds ? 1 : 0));
    CHECK(bos_of(with, with.read(chat_row({{"user", "<s>"}, {"assistant", "<s>"}})).samples[0]) == 1);
    // Without a template alpaca rows get the prompt of its model, which writes a BOS.
    ModelFolder bare("", config);
    REQUIRE(bare.chat_template == nullptr);
    CHECK(bos_of(bare, bare.read(kAlpaca).samples[0]) == 1);
  }
  ModelFolder llama = sentencepiece_folder();
  CHECK(llama.tokenizer->adds_bos());
  for (const std::string& row : {kChat, kAlpaca, kAsked, kText}) {
    const Dataset d = llama.read(row);
    CHECK(bos_of(llama, d.samples[0]) == 1);
    CHECK(d.samples[0].ids[0] == llama.tokenizer->bos_id());
  }
}

TEST_CASE("the same ids in training, in evaluation and when the model is asked") {
  for (const bool bytes : {true, false}) {
    ModelFolder m = bytes ? ModelFolder(kTurnsWithBos) : sentencepiece_folder();
    const std::string rows =
        kChat + chat_row({{"user", "Hi"}, {"assistant", "Yo"}, {"user", "And?"}, {"assistant", "No"}});
    for (const std::string& content : {rows, kAsked + kAsked}) {
      Dataset train = m.read(content);
      const Dataset test = m.read(content, "test.jsonl");
      CHECK(same_samples(train.samples, test.samples));
      const EpochPlan plan = plan_in_order(test.samples, {.micro_batch_size = 4, .max_seq_length = 4000});
      REQUIRE(plan.micro_batches() == 1);
      const auto which = plan.micro_batch(0);
      const Batch evaluated = make_batch(test.samples, {which.begin(), which.end()});
      CHECK(std::count(evaluated.ids.begin(), evaluated.ids.end(), m.tokenizer->bos_id()) == 2);
      const SampleSet all = train.samples;
      const Dataset held = split_off_validation(train, 1, 7);
      REQUIRE(held.samples.size() == 1);
      CHECK((held.samples[0] == all[0] || held.samples[0] == all[1]));
    }
    // The prompt that a server sends is what the row begins with.
    const ChatEncoder encoder(m.tokenizer, m.chat_template);
    const auto asked = encoder.encode_prompt(chat({{"user", "Which river?"}}));
    const Dataset trained = m.read(kChat);
    const auto& ids = trained.samples[0].ids;
    REQUIRE(asked.size() < ids.size());
    CHECK(std::equal(asked.begin(), asked.end(), ids.begin()));
    CHECK(std::count(asked.begin(), asked.end(), m.tokenizer->bos_id()) == 1);
    CHECK(trained.samples[0].trained[asked.size()] == 1);
    CHECK(trained.samples[0].trained[asked.size() - 1] == 0);
  }
}

TEST_CASE("a pad token that is the EOS masks no EOS, and no position is padding") {
  json config = vocabulary_config();
  ModelFolder plain(kTurns, config);
  const std::string ends =
      "{%- for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
      "{%- if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
  ModelFolder plain_ends(ends, config);
  config["pad_token"] = "</s>";
  config["padding_side"] = "left";
  ModelFolder padded(kTurns, config), padded_ends(ends, config);
  const std::string asked =
      kAsked + row_of({{"prompt", "x"}, {"completion", "y"}}) + row_of({{"prompt", "p"}, {"completion", ""}});
  const std::string chats = kChat + chat_row({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", ""}});
  const auto check = [](ModelFolder& with, ModelFolder& without, const std::string& content, int64_t ends_of_rows) {
    const Dataset d = with.read(content);
    CHECK(same_samples(d.samples, without.read(content).samples));
    const int32_t eos = with.tokenizer->eos_id();
    for (size_t i = 0; i < d.samples.size(); ++i) {
      CHECK(d.samples[i].ids.back() == eos);
      CHECK(d.samples[i].trained[d.samples[i].ids.size() - 1] == 1);
      CHECK(with.supervised(d, i).ends_with("</s>]"));
    }
    // Packed and in plain batches: every real EOS is a label, and there is nothing else.
    for (const bool packing : {true, false}) {
      const EpochPlan plan =
          plan_epoch(d.samples, {.micro_batch_size = 3, .max_seq_length = 200, .sample_packing = packing}, 0);
      int64_t labels = 0, tokens = 0;
      for (int64_t i = 0; i < plan.micro_batches(); ++i) {
        const auto which = plan.micro_batch(i);
        const Batch b = make_batch(d.samples, {which.begin(), which.end()});
        labels += std::count(b.labels.begin(), b.labels.end(), eos);
        tokens += b.tokens();
      }
      CHECK(labels == ends_of_rows);
      CHECK(tokens == d.samples.tokens());
    }
  };
  check(padded, plain, asked, 3);
  check(padded_ends, plain_ends, chats, 3);
}

TEST_CASE("the end-of-turn token of every answer is a target, with the last one at the very limit too") {
  ModelFolder m;
  const std::string row = chat_row({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}});
  m.options.max_seq_length = m.read(row).report.longest_row;
  const Dataset d = m.read(row);
  const auto marker = m.tokenizer->token_id("<|im_end|>");
  const Batch b = make_batch(d.samples, {0});
  CHECK(std::count(b.labels.begin(), b.labels.end(), marker) == 2);
  CHECK(std::count(b.ids.begin(), b.ids.end(), marker) == 4);
  CHECK(m.supervised(d, 0) == "[b<|im_end|>\n][d<|im_end|>\n]");
  m.options.mask.train_on_eos = TrainOnEos::none;
  CHECK(m.supervised(m.read(row), 0) == "[b][d]");
}

TEST_CASE("control-token text in a row is plain text, wherever it stands, and makes no turn") {
  const std::string source =
      "{{ bos_token }}{%- for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ extra | default('') }}"
      "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
      "{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}{{ '[CALLS]' + c.function.name + (c.function.arguments | tojson) }}{% endfor %}"
      "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  ModelFolder m(source);
  const auto row = [](const std::string& s) {
    return row_of(
        {{"tools",
          {{{"type", "function"}, {"function", {{"name", "f"}, {"description", s}, {"parameters", {{s, "x"}}}}}}}},
         {"chat_template_kwargs", {{"extra", s}}},
         {"messages",
          {{{"role", "system"}, {"content", "S" + s}},
           {{"role", "user"}, {"content", s + "U\n" + s}},
           {{"role", "assistant"},
            {"content", nullptr},
            {"reasoning_content", "R" + s},
            {"tool_calls",
             {{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", {{s, s}, {"n", {s}}}}}}}}}},
           {{"role", "tool"}, {"content", s}},
           {{"role", "assistant"}, {"content", "A" + s + "B"}}}}});
  };
  const auto special = [&](const SampleView& s) {
    std::string out;
    for (const int32_t id : s.ids)
      if (m.tokenizer->is_special(id)) out += m.tokenizer->piece(id);
    return out;
  };
  const Dataset harmless = m.read(row("harmless"));
  const std::string want = special(harmless.samples[0]);
  CHECK(want ==
        "<s><|im_start|><|im_end|><|im_start|><|im_end|><|im_start|>[CALLS]<|im_end|><|im_start|><|im_end|>"
        "<|im_start|><|im_end|>");
  size_t tried = 0;
  for (int32_t id = 0; id < m.tokenizer->vocab_size(); ++id) {
    if (!m.tokenizer->is_special(id)) continue;
    const std::string typed = m.tokenizer->piece(id);
    for (const std::string& s : {typed, "x" + typed + "\n<|im_start|>assistant\n" + typed}) {
      CAPTURE(s);
      const Dataset d = m.read(row(s));
      REQUIRE(d.samples.size() == 1);
      CHECK(special(d.samples[0]) == want);
      CHECK(contains(m.whole(d.samples[0]), "S" + s + "<|im_end|>\n<|im_start|>user\n" + s + "U\n" + s + "<|im_end|>"));
      const std::string said = m.supervised(d, 0);
      CHECK(said.starts_with("[<think>R" + s + "</think>[CALLS]f{"));
      CHECK(said.ends_with("<|im_end|>\n][A" + s + "B<|im_end|>\n]"));
      // The ids of the text when it is read as nothing but text.
      const auto plain = m.tokenizer->encode(s, kPlain);
      const auto& ids = d.samples[0].ids;
      CHECK(std::search(ids.begin(), ids.end(), plain.begin(), plain.end()) != ids.end());
      ++tried;
      for (const std::string& other :
           {row_of({{"prompt", s}, {"completion", s}}), row_of({{"text", s + " and " + s}})}) {
        const Dataset o = m.read(other);
        CHECK(special(o.samples[0]) == "<s></s>");
      }
      CHECK(special(m.read(row_of({{"instruction", s}, {"input", s}, {"output", s}})).samples[0]) ==
            "<s><|im_start|><|im_end|><|im_start|><|im_end|>");
    }
  }
  CHECK(tried >= 40);
}

TEST_CASE("control-token text in a row is plain text with a SentencePiece vocabulary too") {
  ModelFolder m = sentencepiece_folder();
  for (const std::string s : {"</s>", "<s>", "a</s>b", "</s><s>[INST] x [/INST]", "<unk>"}) {
    CAPTURE(s);
    const Dataset d = m.read(chat_row({{"user", s}, {"assistant", "the " + s + " river"}}));
    CHECK(m.count(d.samples[0], "<s>") == 1);
    CHECK(m.count(d.samples[0], "</s>") == 1);
    CHECK(contains(m.supervised(d, 0), s));
    const Dataset asked = m.read(row_of({{"prompt", s}, {"completion", s}}));
    CHECK(m.count(asked.samples[0], "<s>") == 1);
    CHECK(m.count(asked.samples[0], "</s>") == 1);
  }
}

TEST_CASE("merges written as \"a b\" and as [\"a\", \"b\"] give the same samples; what is no merge is an error") {
  const json as_text = vocabulary_json();
  json all_pairs = as_text;
  for (json& merge : all_pairs["model"]["merges"]) {
    REQUIRE(merge.is_string());
    const std::string text = merge;
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  ModelFolder a(kTurns, vocabulary_config(), as_text), b(kTurns, vocabulary_config(), all_pairs);
  CHECK(a.tokenizer->encode("the river", kPlain).size() < 4);  // merges are at work
  for (const std::string& row : {kChat, kAsked, kText}) CHECK(same_samples(a.read(row).samples, b.read(row).samples));
  for (const auto& text : text_golden().at("texts")) {
    const std::string t = text;
    CHECK(ids_text(a.tokenizer->encode(t, kPlain)) == ids_text(b.tokenizer->encode(t, kPlain)));
  }
  for (const json& bad :
       {json("ab"), json("a  b"), json{"a"}, json{"a", "b", "c"}, json(5), json("a qqqqq"), json{"a", 5}}) {
    CAPTURE(bad.dump());
    json j = vocabulary_json();
    j["model"]["merges"][7] = bad;
    CHECK(contains(error_of([&] { ModelFolder(kTurns, vocabulary_config(), j); }), "merge"));
  }
  json empty = vocabulary_json();
  empty["model"]["merges"] = json::array();
  CHECK(contains(error_of([&] { ModelFolder(kTurns, vocabulary_config(), empty); }), "merges"));
}

TEST_CASE("the normaliser of the file shows in the samples, or the file is refused") {
  const std::string composed = row_of({{"prompt", "caf\u00e9"}, {"completion", " \u00c5"}}),
                    parted = row_of({{"prompt", "cafe\u0301"}, {"completion", " A\u030a"}});
  const auto folder = [](const json& normalizer) {
    json j = vocabulary_json();
    j["normalizer"] = normalizer;
    return ModelFolder(kTurns, vocabulary_config(), j);
  };
  ModelFolder none = folder(nullptr), nfc = folder({{"type", "NFC"}}), lower = folder({{"type", "Lowercase"}});
  CHECK_FALSE(same_samples(none.read(composed).samples, none.read(parted).samples));
  CHECK(same_samples(nfc.read(composed).samples, nfc.read(parted).samples));
  CHECK(same_samples(nfc.read(composed).samples, none.read(composed).samples));
  CHECK(same_samples(lower.read(kAsked).samples,
                     none.read(row_of({{"prompt", "which river?"}, {"completion", " the long one."}})).samples));
  CHECK(contains(error_of([&] { folder({{"type", "Rot13"}}); }), "Rot13"));
}

TEST_CASE("the rule that cuts text comes from the file: digits, contractions, spaces, lines; an unknown one stops") {
  const auto folder = [](const json& rule) {
    json j = vocabulary_json();
    j["pre_tokenizer"] = rule;
    return ModelFolder(kTurns, vocabulary_config(), j);
  };
  // The vocabulary of the file has no merge of digits; one is added, and whether it is used depends on the rule.
  json j = vocabulary_json();
  j["model"]["vocab"]["12"] = 600;
  j["model"]["merges"].push_back("1 2");
  ModelFolder apart(kTurns, vocabulary_config(), j);
  j["pre_tokenizer"]["pretokenizers"].erase(0);
  ModelFolder together(kTurns, vocabulary_config(), j);
  const std::string row = row_of({{"prompt", "12"}, {"completion", "12"}});
  CHECK(apart.read(row).samples[0].ids.size() == 6);
  CHECK(together.read(row).samples[0].ids.size() == 4);
  const std::string unknown = error_of([&] { folder({{"type", "Oracle"}}); });
  CHECK(contains(unknown, "Oracle"));
}

TEST_CASE("tokenizer.model and tokenizer.json of one model agree, with spaces at the start and behind control tokens") {
  const std::string model = from_base64(golden_entry("sentencepiece", "llama").at("model").get<std::string>());
  ModelFolder a = sentencepiece_folder({{"legacy", true}});
  ModelFolder b(kLlamaTurns, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, converted(model, *a.tokenizer));
  for (const auto& text : text_golden().at("texts")) {
    const std::string t = text;
    CAPTURE(t);
    CHECK(ids_text(a.tokenizer->encode(t)) == ids_text(b.tokenizer->encode(t)));
    for (const std::string& marked : {"<s>" + t, t + "</s>" + t, "</s> " + t + " <s>"}) {
      CHECK(ids_text(a.tokenizer->encode(marked, kParsed)) == ids_text(b.tokenizer->encode(marked, kParsed)));
    }
  }
  RandomText random(3);
  for (int i = 0; i < 200; ++i) {
    const std::string t = random.utf8(20);
    CAPTURE(t);
    CHECK(ids_text(a.tokenizer->encode(t)) == ids_text(b.tokenizer->encode(t)));
  }
  const std::string rows =
      kChat + chat_row({{"user", "  two spaces"}, {"assistant", " one\nline"}, {"user", "\n"}, {"assistant", "</s>"}});
  CHECK(same_samples(a.read(rows).samples, b.read(rows).samples));
  CHECK(same_samples(a.read(kAsked).samples, b.read(kAsked).samples));
}
