// SPDX-License-Identifier: Apache-2.0
// Where a model's chat template is found, and with which variables it is rendered.
#include "finetune/text/chat_template.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

namespace fs = std::filesystem;

ChatInput chat(const char* extra = nullptr) {
  ChatInput out;
  out.messages = JinjaValue::from_json(ordered_json::parse(R"([{"role": "user", "content": "Hi"}])"));
  if (extra != nullptr) out.variables.emplace_back(extra, true);
  return out;
}

std::string failure(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.code())) + ": " + e.what();
  }
  return "nothing raised";
}

}  // namespace

TEST_CASE("chat template: the file of its own comes before tokenizer_config.json, that before chat_template.json") {
  TempDir dir;
  CHECK(failure([&] { ChatTemplate::load(dir.path()); }) == "4: " + dir.path().string() + ": no chat template");
  write_file(dir / "chat_template.json", R"({"chat_template": "C"})");
  CHECK(ChatTemplate::load(dir.path()).render(chat()).text == "C");
  write_file(dir / "tokenizer_config.json", R"({"bos_token": "<s>"})");
  CHECK(ChatTemplate::load(dir.path()).render(chat()).text == "C");
  write_file(dir / "tokenizer_config.json", R"({"chat_template": "B"})");
  CHECK(ChatTemplate::load(dir.path()).render(chat()).text == "B");
  write_file(dir / "chat_template.jinja", "A{{ messages[0].content }}\n");
  CHECK(ChatTemplate::load(dir.path()).render(chat()).text == "AHi");
}

TEST_CASE("chat template: variables of a rendering") {
  TempDir dir;
  write_file(dir / "tokenizer_config.json",
             R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "pad_token": null})");
  write_file(dir / "special_tokens_map.json", R"({"eos_token": "old", "pad_token": "old", "unk_token": "<unk>"})");
  const auto t = ChatTemplate::from_text(
      "{{ bos_token }}{{ eos_token }}{{ unk_token }}|{{ pad_token is defined }}|{{ tools }}|{{ documents }}|"
      "{{ add_generation_prompt }}|{{ thinking }}",
      "t", dir.path());
  CHECK(t.render(chat()).text == "<s></s><unk>|False|None|None|False|");
  ChatInput input = chat("thinking");
  input.add_generation_prompt = true;
  input.tools = JinjaValue::from_json(ordered_json::parse(R"([{"name": "f"}])"));
  CHECK(t.render(input).text == "<s></s><unk>|False|[{'name': 'f'}]|None|True|True");
  CHECK(chat("bos_token").variables.size() == 1);
  CHECK(ChatTemplate::from_text("{{ bos_token }}", "t", dir.path()).render(chat("bos_token")).text == "True");
  CHECK(ChatTemplate::from_text("[{{ bos_token }}]", "t").render(chat()).text == "[]");
}

TEST_CASE("chat template: named templates") {
  TempDir dir;
  write_file(dir / "tokenizer_config.json",
             R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  const auto t = ChatTemplate::load(dir.path());
  ChatInput input = chat();
  CHECK(t.render(input).text == "D");
  input.tools = JinjaValue::list({});
  CHECK(t.render(input).text == "T");
  write_file(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  const std::string where = "4: " + (dir / "tokenizer_config.json").string() + ": chat_template";
  CHECK(failure([&] { ChatTemplate::load(dir.path()).render(chat()); }) ==
        where + ": no template is named 'default', found rag");
  write_file(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "rag"}]})");
  CHECK(failure([&] { ChatTemplate::load(dir.path()); }) == where + "[0]: expected a name and a template");
  write_file(dir / "tokenizer_config.json", R"({"chat_template": 5})");
  CHECK(failure([&] { ChatTemplate::load(dir.path()); }) ==
        where + ": expected a text or a list of named templates, found number");
  write_file(dir / "tokenizer_config.json",
             R"({"chat_template": [{"name": "a", "template": "x"}, {"name": "a", "template": "y"}]})");
  CHECK(failure([&] { ChatTemplate::load(dir.path()); }) == where + "[1]: a second template 'a'");
}

TEST_CASE("chat template: a broken one is an error, not a reason to take another") {
  TempDir dir;
  write_file(dir / "tokenizer_config.json", R"({"chat_template": "fine"})");
  write_file(dir / "chat_template.jinja", "{% if %}");
  CHECK(failure([&] { ChatTemplate::load(dir.path()); }) ==
        "4: " + (dir / "chat_template.jinja").string() + ":1:7: expected an expression");
  write_file(dir / "chat_template.jinja", "a\n{{ raise_exception('No system role') }}");
  CHECK(failure([&] { ChatTemplate::load(dir.path()).render(chat()); }) ==
        "3: " + (dir / "chat_template.jinja").string() + ":2:4: No system role");
}

TEST_CASE("chat template: of a GGUF file") {
  TempDir dir;
  GgufBuilder b;
  b.value_text_array("tokenizer.ggml.tokens", {"<s>", "</s>", "a"});
  b.value_u32("tokenizer.ggml.bos_token_id", 0);
  b.value_u32("tokenizer.ggml.eos_token_id", 1);
  write_file(dir / "none.gguf", b.bytes());
  CHECK(failure([&] { ChatTemplate::load(dir / "none.gguf"); }) ==
        "4: " + (dir / "none.gguf").string() + ": no chat template");
  b.value_text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
  write_file(dir / "m.gguf", b.bytes());
  CHECK(ChatTemplate::load(dir / "m.gguf").render(chat()).text == "<s>Hi</s>");
  b.value_text_array("tokenizer.chat_templates", {"default", "tool_use"});
  b.value_text("tokenizer.chat_template.tool_use", "{{ tools | length }}");
  write_file(dir / "two.gguf", b.bytes());
  ChatInput input = chat();
  CHECK(ChatTemplate::load(dir / "two.gguf").render(input).text == "<s>Hi</s>");
  input.tools = JinjaValue::list({JinjaValue("f")});
  CHECK(ChatTemplate::load(dir / "two.gguf").render(input).text == "1");
  b.value_u32("tokenizer.ggml.padding_token_id", 3);
  write_file(dir / "bad.gguf", b.bytes());
  CHECK(failure([&] { ChatTemplate::load(dir / "bad.gguf"); }) ==
        "4: " + (dir / "bad.gguf").string() + ": tokenizer.ggml.padding_token_id is 3, but there are 3 tokens");
}

TEST_CASE("chat template: of real models") {
  const fs::path models = fs::path(BANTAM_SHARED_DATA) / "tokenizers";
  if (!fs::exists(models / "qwen3")) {
    MESSAGE("skipped, not here: " << models.string());
    return;
  }
  ChatInput input = chat();
  input.add_generation_prompt = true;
  CHECK(ChatTemplate::load(models / "qwen3").render(input).text ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  input.variables.emplace_back("enable_thinking", false);
  CHECK(ChatTemplate::load(models / "qwen3").render(input).text ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  CHECK(ChatTemplate::load(models / "phi3").render(chat()).text.find("<|user|>\nHi<|end|>\n") != std::string::npos);
}
