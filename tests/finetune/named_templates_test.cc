// SPDX-License-Identifier: Apache-2.0
// The templates that need no model: their text, what of it is trained, and what they refuse.
#include "finetune/text/named_templates.h"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "conversation_testing.h"
#include "finetune/text/chat_template.h"
#include "text_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

// A model that names its special tokens, and nothing more.
struct Model {
  TempDir dir;
  Model() { write_file(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})"); }
};

ChatInput input_of(const Conversation& c, bool generation_prompt = false) {
  ChatInput out;
  out.messages = c.messages, out.tools = c.tools, out.variables = c.variables;
  out.add_generation_prompt = generation_prompt;
  return out;
}

ChatInput input_of(const std::string& row, bool generation_prompt = false) {
  return input_of(read_chat(ordered_json::parse(row), {}), generation_prompt);
}

// What is trained, in brackets.
std::string marked(const Rendered& r) {
  std::string out;
  size_t at = 0;
  for (const JinjaSpan& s : r.generation) {
    out += r.text.substr(at, s.begin - at) + "[[" + r.text.substr(s.begin, s.end - s.begin) + "]]";
    at = s.end;
  }
  return out + r.text.substr(at);
}

std::string failure(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return str(static_cast<int>(e.code()), ": ", e.what(), e.hint().empty() ? "" : " | ", e.hint());
  }
  return "nothing raised";
}

const char* kTalk = R"({"messages": [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Yo"}, {"role": "user", "content": " Bye "}, {"role": "assistant", "content": "Ci\nao"}]})";
const char* kShort = R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}]})";
const char* kAsked = R"({"messages": [{"role": "user", "content": "Hi"}]})";

}  // namespace

TEST_CASE("named templates: text and trained spans") {
  struct Golden {
    const char *name, *talk, *brief, *asked;
  };
  const Golden goldens[] = {
      {"chatml",
       "<|im_start|>system\nBe "
       "terse.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yo<|im_end|>\n]]"
       "<|im_start|>user\n Bye <|im_end|>\n<|im_start|>assistant\n[[Ci\nao<|im_end|>\n]]",
       "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[<|im_end|>\n]]",
       "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
      {"llama3",
       "<s><|start_header_id|>system<|end_header_id|>\n\nBe "
       "terse.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
       "Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[[Yo<|eot_id|>]]<|start_header_id|>user<|end_"
       "header_"
       "id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[[Ci\nao<|eot_id|>]]",
       "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
       "[[<|eot_id|>]]",
       "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
      {"llama2",
       "<s>[INST] <<SYS>>\nBe terse.\n<</SYS>>\n\nHi [/INST][[ Yo </s>]]<s>[INST] Bye [/INST][[ Ci\nao </s>]]",
       "<s>[INST] Hi [/INST][[  </s>]]", "<s>[INST] Hi [/INST]"},
      {"mistral", "<s>[INST] Hi[/INST][[ Yo</s>]][INST] Be terse.\n\n Bye [/INST][[ Ci\nao</s>]]",
       "<s>[INST] Hi[/INST][[ </s>]]", "<s>[INST] Hi[/INST]"},
      {"gemma3",
       "<s><start_of_turn>user\nBe terse.\n\nHi<end_of_turn>\n<start_of_turn>model\n[[Yo<end_of_turn>\n]]"
       "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n[[Ci\nao<end_of_turn>\n]]",
       "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[[<end_of_turn>\n]]",
       "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"},
      {"gemma", nullptr, "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[[<end_of_turn>\n]]",
       "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"},
      {"phi3",
       "<|system|>\nBe terse.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n[[Yo<|end|>\n]]<|user|>\n Bye <|end|>\n"
       "<|assistant|>\n[[Ci\nao<|end|>\n</s>]]",
       "<|user|>\nHi<|end|>\n<|assistant|>\n[[<|end|>\n</s>]]", "<|user|>\nHi<|end|>\n<|assistant|>\n"},
      {"zephyr",
       "<|system|>\nBe terse.</s>\n<|user|>\nHi</s>\n<|assistant|>\n[[Yo</s>\n]]<|user|>\n Bye </s>\n<|assistant|>\n"
       "[[Ci\nao</s>\n]]",
       "<|user|>\nHi</s>\n<|assistant|>\n[[</s>\n]]", "<|user|>\nHi</s>\n<|assistant|>\n"},
      {"alpaca",
       "<s>Be terse.\n\n### Instruction:\nHi\n\n### Response:\n[[Yo</s>]]\n\n### Instruction:\n Bye \n\n### Response:\n"
       "[[Ci\nao</s>]]",
       "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
       "request.\n\n"
       "### Instruction:\nHi\n\n### Response:\n[[</s>]]",
       "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
       "request.\n\n"
       "### Instruction:\nHi\n\n### Response:\n"},
      {"vicuna", "<s>Be terse. USER: Hi ASSISTANT:[[ Yo</s>]]USER:  Bye  ASSISTANT:[[ Ci\nao</s>]]",
       "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
       "detailed, "
       "and polite answers to the user's questions. USER: Hi ASSISTANT:[[ </s>]]",
       "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
       "detailed, "
       "and polite answers to the user's questions. USER: Hi ASSISTANT:"},
  };
  Model model;
  CHECK(std::size(goldens) == named_templates().size());
  for (const Golden& g : goldens) {
    CAPTURE(std::string(g.name));
    const auto t = ChatTemplate::named(g.name, model.dir.path());
    CHECK(t.select(false).has_generation());
    CHECK(t.name() == g.name);
    if (g.talk != nullptr) CHECK(marked(t.render(input_of(kTalk))) == std::string(g.talk));
    CHECK(marked(t.render(input_of(kShort))) == std::string(g.brief));
    CHECK(marked(t.render(input_of(kAsked, true))) == std::string(g.asked));
    // what a server says before the answer is what stands before the trained text
    const std::string brief = t.render(input_of(kShort)).text;
    CHECK(brief.starts_with(t.render(input_of(kAsked, true)).text));
  }
}

TEST_CASE("named templates: rows of alpaca keep instruction and input apart where the template does") {
  Model model;
  const auto row = read_alpaca(ordered_json::parse(R"({"instruction": "Add.", "input": "1 2", "output": "3"})"), {});
  CHECK(marked(ChatTemplate::named("alpaca", model.dir.path()).render(input_of(row))) ==
        "<s>Below is an instruction that describes a task, paired with an input that provides further context. Write a "
        "response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n"
        "### Response:\n[[3</s>]]");
  CHECK(marked(ChatTemplate::named("chatml").render(input_of(row))) ==
        "<|im_start|>user\nAdd.\n1 2<|im_end|>\n<|im_start|>assistant\n[[3<|im_end|>\n]]");
}

TEST_CASE("named templates: chatml says tools, calls, results and reasoning") {
  const char* row = R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
        {"function": {"name": "f", "arguments": "{\"x\": [1]}"}}, {"function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "content": {"a": 1}}, {"role": "assistant", "content": "Done"}],
    "tools": [{"name": "f", "parameters": {"type": "object"}}]})";
  CHECK(marked(ChatTemplate::named("chatml").render(input_of(row))) ==
        "<|im_start|>system\nS\n\nThese functions may be called; their signatures are between <tools> and "
        "</tools>:\n<tools>\n"
        "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\"}}}\n</tools>\nA call is "
        "a JSON object with name and arguments between <tool_call> and </tool_call>:\n<tool_call>\n{\"name\": \"...\", "
        "\"arguments\": "
        "{...}}\n</tool_call><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[<think>\nhm\n"
        "</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
        "[1]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
        "\"arguments\": {}}\n</tool_call><|im_end|>\n]]<|im_start|>tool\n<tool_response>\n{\"a\": "
        "1}\n</tool_response><|im_end|"
        ">\n<|im_start|>assistant\n[[Done<|im_end|>\n]]");
}

TEST_CASE("named templates: what a format cannot say is refused") {
  Model model;
  const auto refused = [&](const char* name, const char* row) {
    const auto t = ChatTemplate::named(name, model.dir.path());
    const std::string message = failure([&] { t.render(input_of(row)); });
    const std::string where = str("3: chat_template ", name, ":");
    CHECK(message.starts_with(where));  // then line and column
    return message.substr(std::min(message.size(), message.find(": ", where.size()) + 2));
  };
  const char* tools = R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "f"}]})";
  const char* call =
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [
    {"name": "f"}]}]})";
  const char* reasons = R"({"messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "a", "reasoning_content": "b"}]})";
  const char* tool = R"({"messages": [{"role": "tool", "content": "Hi"}]})";
  for (const auto& t : named_templates()) {
    if (t.name == "chatml") continue;
    CAPTURE(t.name);
    CHECK(refused(t.name.c_str(), tools) ==
          "this template has no place for tools: take chatml, or the template of the model");
    const std::string no_calls =
        "this template has no place for tool calls and reasoning: take chatml, or the template of the model";
    CHECK(refused(t.name.c_str(), call) == no_calls);
    CHECK(refused(t.name.c_str(), reasons) == no_calls);
    CHECK(refused(t.name.c_str(), tool) == "this template has no role tool, only system, user and assistant");
  }
  const char* two = R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})";
  for (const char* name : {"llama2", "mistral", "gemma", "gemma3"}) {
    CAPTURE(std::string(name));
    CHECK(refused(name, two) == "user and assistant have to take turns, the user first");
  }
  const char* late = R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]})";
  for (const char* name : {"llama2", "mistral", "gemma", "gemma3", "alpaca", "vicuna"}) {
    CAPTURE(std::string(name));
    CHECK(refused(name, late) == "a system turn can only be the first");
  }
  CHECK(refused("gemma", kTalk) ==
        "this template has no system turn: take gemma3, or put its text into the first user turn");
}

TEST_CASE("named templates: unknown names and missing tokens") {
  const std::string known =
      " | known are tokenizer_default (the model's own), chatml, llama3, llama2, mistral, gemma, gemma3, phi3, zephyr, "
      "alpaca, vicuna, and the path of a .jinja file";
  const auto named = [](const char* name) { return failure([&] { ChatTemplate::named(name); }); };
  const std::string no = "2: chat_template '", such = "': no such template";
  CHECK(named("Llama-3") == no + "Llama-3" + such + ", did you mean llama3?" + known);
  CHECK(named("chat_ml") == no + "chat_ml" + such + ", did you mean chatml?" + known);
  CHECK(named("zephir") == no + "zephir" + such + ", did you mean zephyr?" + known);
  CHECK(named("phi-3.5") == no + "phi-3.5" + such + ", did you mean phi3?" + known);
  CHECK(named("qwen") == no + "qwen" + such + known);
  CHECK(named("") == no + such + known);
  CHECK(named("a\nb") == no + "a\\x0ab" + such + known);
  CHECK(named("vicuna") ==
        "4: chat_template vicuna: it ends answers with eos_token, and no model names one | name eos_token in "
        "tokenizer_config.json, or take another template");
  TempDir dir;
  write_file(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": null})");
  CHECK(failure([&] {
          ChatTemplate::named("zephyr", dir.path());
        }).starts_with("4: chat_template zephyr: it ends answers with eos_token, and " + dir.path().string()));
  CHECK(failure([&] { ChatTemplate::named("llama3", dir.path()); }) == "nothing raised");
}

TEST_CASE("chat template: by the recipe's setting") {
  TempDir dir;
  CHECK(failure([&] { ChatTemplate::resolve("tokenizer_default", dir.path()); }) ==
        "4: " + dir.path().string() +
            ": no chat template | a base model has none: set chat_template: chatml (or another name, or the path of a "
            ".jinja file), or use another dataset type");
  write_file(dir / "tokenizer_config.json", R"({"chat_template": "own{{ eos_token }}", "eos_token": "</s>"})");
  write_file(dir / "other.jinja", "other{{ eos_token }}\n");
  const auto own = ChatTemplate::resolve("tokenizer_default", dir.path());
  CHECK(own.render(input_of(kAsked)).text == "own</s>");
  CHECK(own.source(false) == "own{{ eos_token }}");
  CHECK(own.name() == "tokenizer_default");
  const auto chatml = ChatTemplate::resolve("chatml", dir.path());
  CHECK(chatml.source(true) == named_template("chatml").source);
  const std::string path = (dir / "other.jinja").string();
  const auto other = ChatTemplate::resolve(path, dir.path());
  CHECK(other.render(input_of(kAsked)).text == "other</s>");
  CHECK(other.source(false) == "other{{ eos_token }}\n");
  CHECK(other.name() == path);
  CHECK(failure([&] { ChatTemplate::resolve("gone.jinja", dir.path()); }) ==
        "2: chat_template gone.jinja: no such file");
  write_file(dir / "bad.jinja", "{% if %}");
  CHECK(failure([&] { ChatTemplate::resolve((dir / "bad.jinja").string(), dir.path()); }) ==
        "4: " + (dir / "bad.jinja").string() + ":1:7: expected an expression");
  // what is written to a run folder renders the same there
  TempDir run;
  write_file(run / "chat_template.jinja", chatml.source(false));
  CHECK(ChatTemplate::load(run.path()).render(input_of(kTalk)).text == chatml.render(input_of(kTalk)).text);
}

TEST_CASE("chat template: fingerprints differ by text, by special token, and by nothing else") {
  TempDir a, b;
  write_file(a / "tokenizer_config.json", R"({"chat_template": "x", "eos_token": "</s>", "other": 1})");
  write_file(b / "tokenizer_config.json", R"({"chat_template": "x", "eos_token": "</s>"})");
  const uint64_t first = ChatTemplate::load(a.path()).fingerprint();
  CHECK(first == ChatTemplate::load(b.path()).fingerprint());
  CHECK(first == ChatTemplate::from_text("x", "elsewhere", a.path()).fingerprint());
  CHECK(first != ChatTemplate::from_text("x ", "elsewhere", a.path()).fingerprint());
  CHECK(first != ChatTemplate::from_text("x", "elsewhere").fingerprint());
  write_file(b / "tokenizer_config.json", R"({"chat_template": "x", "eos_token": "</S>"})");
  CHECK(first != ChatTemplate::load(b.path()).fingerprint());
}

TEST_CASE("chat template: content parts and call arguments in the form that the template takes") {
  const auto rendered = [](const char* source, const char* row) {
    return ChatTemplate::from_text(source, "t").render(input_of(row)).text;
  };
  const char* parts =
      R"({"messages": [{"role": "user", "content": ["a", "b"]}, {"role": "assistant", "content": "c"}]})";
  CHECK(rendered("{% for m in messages %}{{ m.content + '|' }}{% endfor %}", parts) == "a\nb|c|");
  // a list printed as such was not taken
  CHECK(rendered("{% for m in messages %}{{ m.content }}|{% endfor %}", parts) == "a\nb|c|");
  CHECK(rendered("{% for m in messages %}{{ m.content | tojson }}|{% endfor %}", parts) == "\"a\\nb\"|\"c\"|");
  CHECK(rendered("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
                 "<{{ p.text }}>{% endfor %}{% endif %}|{% endfor %}",
                 parts) == "<a><b>|c|");
  const char* call =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [
    {"name": "f", "arguments": "{\"x\":1.0}"}, {"name": "g", "arguments": {"é": null}}]}]})";
  const std::string loop = "{% for m in messages %}{% for c in m.tool_calls %}", end = "|{% endfor %}{% endfor %}";
  CHECK(rendered((loop + "{{ c.function.arguments | tojson }}" + end).c_str(), call) == "{\"x\": 1.0}|{\"é\": null}|");
  CHECK(rendered((loop + "{{ 'f ' + c.function.arguments }}" + end).c_str(), call) ==
        "f {\"x\": 1.0}|f {\"é\": null}|");
  CHECK(rendered((loop + "{{ c.function.arguments }}" + end).c_str(), call) == "{\"x\": 1.0}|{\"é\": null}|");
  CHECK(rendered((loop +
                  "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
                  "{{ c.function.arguments | tojson }}{% endif %}" +
                  end)
                     .c_str(),
                 call) == "{\"x\": 1.0}|{\"é\": null}|");
  CHECK(rendered((loop + "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}" + end).c_str(),
                 call) == "x=1.0|é=None|");
  // null content of a call: as the row has it, unless the template stumbles over it or prints it
  const char* none = R"({"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]}, {"role": "assistant", "tool_calls": [{"name": "f"}]}]})";
  const std::string says = "{{ c.function.arguments | tojson }}" + end;
  CHECK(rendered((loop + "{{ m.content is none }}" + says).c_str(), none) == "True{}|False{}|");
  CHECK(rendered((loop + "{{ 'x' in m.content }}" + says).c_str(), none) == "False{}|False{}|");
  CHECK(rendered((loop + "{{ '<' + m.content + '>' }}" + says).c_str(), none) == "<>{}|<>{}|");
  CHECK(rendered((loop + "<{{ m.content }}>" + says).c_str(), none) == "<>{}|<>{}|");
}
