// SPDX-License-Identifier: Apache-2.0
// Real datasets and real templates, where they are at hand.
#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "conversation_testing.h"
#include "finetune/text/chat_template.h"
#include "finetune/text/named_templates.h"
#include "kernels/hash.h"
#include "shared_testing.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

namespace fs = std::filesystem;

// A list, one object, or lines of them.
std::vector<ordered_json> rows_of(const fs::path& path) {
  const std::string text = read_file(path);
  if (path.extension() == ".json") {
    const auto j = ordered_json::parse(text);
    if (!j.is_array()) return {j};
    return {j.begin(), j.end()};
  }
  std::vector<ordered_json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) out.push_back(ordered_json::parse(line));
  return out;
}

Conversation read(const ordered_json& row) {
  return row.contains("instruction") ? read_alpaca(row, {}) : read_chat(row, {});
}

ChatInput input_of(const Conversation& c) {
  ChatInput out;
  out.messages = c.messages, out.tools = c.tools, out.variables = c.variables;
  return out;
}

}  // namespace

TEST_CASE("conversation: every row of real chat data is read, and its type is seen") {
  if (missing(shared_data("datasets"))) return;
  struct File {
    const char *name, *type;
    size_t rows, turns, calls;
  };
  for (const File& f : {
           File{"llamafactory/glaive_toolcall_en_demo.json", "chat", 300, 1914, 211},
           File{"llamafactory/reason_tool_use_demo_50.jsonl", "chat", 50, 274, 68},
           File{"llamafactory/v1_sft_demo.jsonl", "chat", 500, 1000, 0},
           File{"llamafactory/kto_en_demo.json", "preference data (label", 300, 974, 0},
           File{"llamafactory/identity.json", "alpaca", 91, 182, 0},
           File{"axolotl_fixtures/alpaca.json", "alpaca", 2, 4, 0},
           File{"axolotl_fixtures/conversation.json", "chat", 1, 12, 0},
           File{"axolotl_fixtures/conversation.missingturns.json", "chat", 1, 12, 0},
           File{"torchtune_tiny/chat_tiny.json", "chat", 1, 5, 0},
           // what is no conversation says what it is
           File{"axolotl_fixtures/conversation.tokenized.json", "tokenised rows", 0, 0, 0},
           File{"torchtune_tiny/hh_rlhf_tiny.json", "preference data (chosen", 0, 0, 0},
           File{"torchtune_tiny/instruct_tiny.json", "no known shape", 0, 0, 0},
           File{"gsm8k/test.jsonl", "no known shape", 0, 0, 0},
           File{"torchtitan_sft_test.json", "no known shape", 0, 0, 0},
           File{"mlx_wikisql/test.jsonl", "text", 0, 0, 0},
           File{"llamafactory/c4_demo.jsonl", "text", 0, 0, 0},
       }) {
    CAPTURE(std::string(f.name));
    const auto rows = rows_of(shared_data("datasets") / f.name);
    size_t turns = 0, calls = 0, weights = 0;
    std::string type;
    try {
      for (const auto& row : rows) {
        const DatasetType t = detect_type(row, {});
        type = t == DatasetType::chat ? "chat" : t == DatasetType::alpaca ? "alpaca" : "text";
      }
    } catch (const Error& e) {
      type = std::string(e.what()).substr(0, std::string_view(f.type).size());
    }
    CHECK(type == f.type);
    if (f.rows == 0) continue;
    CHECK(rows.size() == f.rows);
    for (const auto& row : rows) {
      const Conversation c = read(row);
      turns += c.turns.size();
      for (const auto& m : c.messages.items())
        if (const auto* list = m.find("tool_calls")) calls += list->items().size();
      for (const Turn& t : c.turns) weights += t.weight.has_value();
    }
    CHECK(turns == f.turns);
    CHECK(calls == f.calls);
    CHECK(weights == (f.name == std::string("llamafactory/v1_sft_demo.jsonl") ? 1000 : 0));
  }
}

TEST_CASE("conversation: real rows through real templates as transformers renders them") {
  if (missing(shared_data("datasets")) || missing(shared_data("chat_templates"))) return;
  TempDir model;
  write_file(model / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  std::string file, name;
  std::vector<ordered_json> rows;
  std::optional<ChatTemplate> chat_template;
  size_t texts = 0, errors = 0;
  for (const auto& entry :
       ordered_json::parse(read_file(fs::path(BANTAM_TESTS_DIR) / "golden" / "conversation_golden.json"))) {
    CAPTURE(entry.dump());
    if (file != entry.at("file")) file = entry.at("file"), rows = rows_of(shared_data("datasets") / file);
    if (name != entry.at("template")) {
      name = entry.at("template");
      chat_template = ChatTemplate::from_text(read_file(shared_data("chat_templates") / name), name, model.path());
    }
    std::string message;
    Rendered out;
    try {
      out = chat_template->render(input_of(read(rows.at(entry.at("row").get<size_t>()))));
    } catch (const Error& e) {
      message = e.what();
    }
    if (entry.contains("error")) {
      ++errors;
      const std::string want = entry.at("error");
      if (want.find("recursion") == std::string::npos) {
        CHECK(message.ends_with(": " + want));
      } else {
        CHECK(message.find("nested") != std::string::npos);
      }
      continue;
    }
    ++texts;
    CHECK(message == "");
    CHECK(out.text.size() == entry.at("bytes").get<size_t>());
    CHECK(hex64(fnv1a(out.text)) == entry.at("fnv").get<std::string>());
  }
  CHECK(texts > 150);
  CHECK(errors > 5);
}

TEST_CASE("named templates: the bytes of the models' own") {
  if (missing(shared_data("chat_templates"))) return;
  TempDir model;
  write_file(model / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  struct Pair {
    const char *name, *file;
    bool system, trimmed, one_line;  ///< which conversations both say; what the file does to texts; how it is stored
  };
  RandomText random(11);
  for (const Pair& p : {
           Pair{"chatml", "axolotl-chatml.jinja", true, false, false},
           Pair{"llama3", "trl-llama3.jinja", true, false, false},
           Pair{"llama3", "trl-llama3_training.jinja", true, false, false},
           Pair{"llama2", "cz-llama-2-chat.jinja", true, true, true},
           Pair{"mistral", "mistral-v3_spm.jinja", true, false, false},
           Pair{"gemma", "google-gemma-2-2b-it.jinja", false, false, false},
           Pair{"gemma3", "trl-gemma3.jinja", true, false, false},
           Pair{"phi3", "microsoft-Phi-3.5-mini-instruct.jinja", true, false, false},
           Pair{"zephyr", "cz-zephyr.jinja", true, true, true},
           Pair{"alpaca", "axolotl-alpaca.jinja", true, false, false},
       }) {
    CAPTURE(std::string(p.file));
    std::string source = read_file(shared_data("chat_templates") / p.file);
    if (p.one_line) {  // its own loader takes indents and line breaks out
      for (const std::string what : {"    ", "\n"})
        for (size_t at = 0; (at = source.find(what, at)) != std::string::npos;) source.erase(at, what.size());
    }
    const auto own = ChatTemplate::from_text(source, p.file, model.path());
    const auto named = ChatTemplate::named(p.name, model.path());
    for (int round = 0; round < 60; ++round) {
      ordered_json messages = ordered_json::array();
      const auto say = [&](const char* role) {
        // no template is asked what it makes of an empty text at the edge of a trimmed one
        std::string text = "x" + random.utf8(random.next() % 12) + (p.trimmed ? "x" : "");
        if (!p.trimmed && round % 3 == 0) text = " \n" + text + "\t ";
        messages.push_back({{"role", role}, {"content", text}});
      };
      if (p.system && (round % 2 == 0 || p.name == std::string("alpaca"))) say("system");
      for (uint32_t turns = 1 + random.next() % 3; turns > 0; --turns) say("user"), say("assistant");
      ChatInput input;
      input.messages = JinjaValue::from_json(messages);
      CHECK(named.render(input).text == own.render(input).text);
      if (own.select(false).has_generation()) CHECK(named.render(input).generation == own.render(input).generation);
      messages.erase(messages.size() - 1);
      input.messages = JinjaValue::from_json(messages);
      input.add_generation_prompt = true;
      CHECK(named.render(input).text == own.render(input).text);
    }
  }
}

TEST_CASE("named templates: alpaca as Axolotl's prompter writes the fixture") {
  const fs::path path = shared_data("datasets") / "axolotl_fixtures" / "alpaca.json";
  if (missing(path)) return;
  TempDir model;
  write_file(model / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const auto alpaca = ChatTemplate::named("alpaca", model.path());
  for (const auto& row : rows_of(path)) {
    // src/axolotl/prompters.py: AlpacaPrompter, style instruct; BOS and EOS are the tokenizer's
    const std::string want =
        "<s>Below is an instruction that describes a task, paired with an input that provides further context. Write a "
        "response that appropriately completes the request.\n\n### Instruction:\n" +
        row.at("instruction").get<std::string>() + "\n\n### Input:\n" + row.at("input").get<std::string>() +
        "\n\n### Response:\n" + row.at("output").get<std::string>() + "</s>";
    const Rendered r = alpaca.render(input_of(read(row)));
    CHECK(r.text == want);
    REQUIRE(r.generation.size() == 1);
    CHECK(r.text.substr(r.generation[0].begin) == row.at("output").get<std::string>() + "</s>");
  }
}
