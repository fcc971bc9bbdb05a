// SPDX-License-Identifier: Apache-2.0
// Which bytes of a rendered conversation are trained, for templates of many shapes.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "chat_testing.h"
#include "finetune/data/chat/regular_form.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

const std::string kChat =
    "{%- for m in messages %}{{ '<|s|>' + m.role + '\\n' + (m.content or '') }}"
    "{%- for c in m.tool_calls or [] %}{{ '<call>' + c.function.name + c.function.arguments | tojson }}{% endfor %}"
    "{{- '<|e|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% endif %}";

std::string spans_of(const std::string& source, const Conversation& conversation, const MaskOptions& options = {},
                     const std::string& eos = "<|e|>") {
  return shown(AnswerSpans(template_of(source, eos, "<s>"), kControl, eos, options).render(conversation));
}

std::string refusal(const std::string& source, const Conversation& conversation, const MaskOptions& options = {}) {
  return error_of([&] { spans_of(source, conversation, options); }, ErrorCode::data);
}

MaskOptions eos_option(TrainOnEos eos) {
  MaskOptions out;
  out.train_on_eos = eos;
  return out;
}

MaskOptions roles_option(std::vector<std::string> roles, TrainOnEos eos = TrainOnEos::turn) {
  MaskOptions out;
  out.roles_to_train = std::move(roles);
  out.train_on_eos = eos;
  return out;
}

ordered_json json(const char* text) {
  return ordered_json::parse(text);
}

}  // namespace

TEST_CASE("answer spans: the answers with their end-of-turn markers, and nothing of the prompt") {
  CHECK(spans_of(kChat, chat(kTwo)) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.<|e|>\n]<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.<|e|>\n]");
  CHECK(spans_of(kChat, chat({{"system", "S"}, {"user", "Hello."}, {"assistant", "Hello."}})) ==
        "<|s|>system\nS<|e|>\n<|s|>user\nHello.<|e|>\n<|s|>assistant\n[Hello.<|e|>\n]");
  CHECK(spans_of(kChat, chat({{"user", "Hi"}, {"assistant", ""}, {"user", ""}, {"assistant", " \n"}})) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[<|e|>\n]<|s|>user\n<|e|>\n<|s|>assistant\n[ \n<|e|>\n]");
  CHECK(spans_of(kChat, chat({{"assistant", "A"}, {"assistant", "B"}, {"user", "C"}})) ==
        "<|s|>assistant\n[A<|e|>\n]<|s|>assistant\n[B<|e|>\n]<|s|>user\nC<|e|>\n");
  CHECK(spans_of(kChat, chat({{"user", "assistant\n"}, {"assistant", "assistant\n"}})) ==
        "<|s|>user\nassistant\n<|e|>\n<|s|>assistant\n[assistant\n<|e|>\n]");
}

TEST_CASE("answer spans: markers of the trained turns, of the last, of all, of none") {
  CHECK(spans_of(kChat, chat(kTwo), eos_option(TrainOnEos::last)) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.]<|e|>\n<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.<|e|>\n]");
  CHECK(spans_of(kChat, chat(kTwo), eos_option(TrainOnEos::none)) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.]<|e|>\n<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.]<|e|>\n");
  CHECK(
      spans_of(kChat, chat(kTwo), eos_option(TrainOnEos::all)) ==
      "<|s|>user\nHi[<|e|>]\n<|s|>assistant\n[Hello.<|e|>\n]<|s|>user\nBye[<|e|>]\n<|s|>assistant\n[Goodbye.<|e|>\n]");
  Conversation c = chat(kTwo);
  c.turns[3].train = false;  // the last trained turn is another one then
  CHECK(spans_of(kChat, c, eos_option(TrainOnEos::last)) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.<|e|>\n]<|s|>user\nBye<|e|>\n<|s|>assistant\nGoodbye.<|e|>\n");
}

TEST_CASE("answer spans: roles, and each message's own train and weight") {
  CHECK(spans_of(kChat, chat(kTwo), roles_option({"user"})) ==
        "<|s|>user\n[Hi<|e|>]\n<|s|>assistant\nHello.<|e|>\n<|s|>user\n[Bye<|e|>]\n<|s|>assistant\nGoodbye.<|e|>\n");
  CHECK(spans_of(kChat, chat({{"system", " S "}, {"user", "U"}, {"assistant", "A"}}),
                 roles_option({"system", "assistant"}, TrainOnEos::none)) ==
        "<|s|>system\n[ S ]<|e|>\n<|s|>user\nU<|e|>\n<|s|>assistant\n[A]<|e|>\n");
  Conversation c = chat(kTwo);
  c.turns[0].train = true;
  c.turns[1].train = false;
  c.turns[3].weight = 0.25f;
  const auto text = AnswerSpans(template_of(kChat), kControl, "<|e|>").render(c);
  CHECK(shown(text) ==
        "<|s|>user\n[Hi<|e|>]\n<|s|>assistant\nHello.<|e|>\n<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.<|e|>\n]");
  REQUIRE(text.trained.size() == 2);
  CHECK(text.trained[0].turn == 0);
  CHECK(text.trained[0].weight == 1);
  CHECK(text.trained[1].turn == 3);
  CHECK(text.trained[1].weight == 0.25f);
  c = chat(kTwo);
  c.turns[1].weight = 0;
  CHECK(spans_of(kChat, c) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\nHello.<|e|>\n<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.<|e|>\n]");
  // Switched off by choice is no fault; no role to train is.
  c.turns[3].train = false;
  CHECK(AnswerSpans(template_of(kChat), kControl, "<|e|>").render(c).trained.empty());
  CHECK(refusal(kChat, chat({{"user", "Hi"}, {"tool", "x"}})) ==
        "no message is trained: the roles are user, tool, roles_to_train has assistant | name the role that is to be "
        "learned in roles_to_train, or leave the row out");
  MaskOptions inputs;
  inputs.train_on_inputs = true;
  CHECK(spans_of(kChat, chat({{"user", "Hi"}}), inputs) == "[<|s|>user\nHi<|e|>\n]");
}

TEST_CASE("answer spans: tags of the template decide, and the marker behind a tagged text") {
  const std::string tagged =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{{ '<|e|>' }}{% endgeneration %}{% else %}{{ m.content + '<|e|>' }}{% endif %}{% endfor %}";
  CHECK(spans_of(tagged, chat(kTwo)) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello.<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[Goodbye.<|e|>]");
  CHECK(spans_of(tagged, chat(kTwo), eos_option(TrainOnEos::none)) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello.]<|e|><|s|>user:Bye<|e|><|s|>assistant:[Goodbye.]<|e|>");
  CHECK(spans_of(tagged, chat(kTwo), roles_option({"user"})) ==
        "<|s|>user:[Hi<|e|>]<|s|>assistant:Hello.<|e|><|s|>user:[Bye<|e|>]<|s|>assistant:Goodbye.<|e|>");
  CHECK(spans_of(tagged, chat({{"user", "a"}, {"assistant", ""}, {"assistant", "b"}})) ==
        "<|s|>user:a<|e|><|s|>assistant:[<|e|>]<|s|>assistant:[b<|e|>]");
  // The marker stands outside of the tags: it is trained all the same, for the model has to stop.
  const std::string text_only =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '<|e|>' }}{% endfor %}";
  CHECK(spans_of(text_only, chat(kTwo)) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello.<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[Goodbye.<|e|>]");
  CHECK(spans_of(text_only, chat(kTwo), eos_option(TrainOnEos::none)) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello.]<|e|><|s|>user:Bye<|e|><|s|>assistant:[Goodbye.]<|e|>");
}

TEST_CASE("answer spans: tags that do not cover the trained messages are a fault") {
  const std::string last_only =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' }}{% if loop.last %}{% generation %}{{ m.content + '<|e|>' }}"
      "{% endgeneration %}{% else %}{{ m.content + '<|e|>' }}{% endif %}{% endfor %}";
  CHECK(
      contains(refusal(last_only, chat(kTwo)),
               "messages[1] (assistant): the template has {% generation %} tags, but none around this message | tag"));
  Conversation c = chat(kTwo);
  c.turns[1].train = false;
  CHECK(spans_of(last_only, c) ==
        "<|s|>user:Hi<|e|><|s|>assistant:Hello.<|e|><|s|>user:Bye<|e|><|s|>assistant:[Goodbye.<|e|>]");
  const std::string over_all =
      "{% generation %}{% for m in messages %}{{ m.content + '<|e|>' }}{% endfor %}{% endgeneration %}";
  CHECK(contains(refusal(over_all, chat(kTwo)), "one holds text of messages[0] (user) and of messages[1] (assistant)"));
  // Two tags for one message, and a message that has none of its own text in them.
  const std::string parts =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' }}{% if m.role == 'assistant' %}{% generation %}{{ m.thinking "
      "}}"
      "{% endgeneration %}|{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
      "{{ '<|e|>' }}{% endfor %}";
  CHECK(spans_of(parts, conversation_of(json(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "thinking": "t"}, {"role": "assistant", "content": "b", "thinking": "u"}])"))) ==
        "<|s|>user:q<|e|><|s|>assistant:[t|a<|e|>]<|s|>assistant:[u|b<|e|>]");
}

TEST_CASE("answer spans: a template that takes reasoning out of earlier answers") {
  const std::string think =
      "{%- set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 "
      "%}"
      "{% endif %}{% endfor %}{% for m in messages %}{% set c = m.content %}{% set t = '' %}{% if '</think>' in c %}"
      "{% set t = c.split('</think>')[0].split('<think>')[-1].strip('\\n') %}{% set c = "
      "c.split('</think>')[-1].lstrip('\\n') %}"
      "{% endif %}{{ '<|s|>' + m.role + '\\n' }}{% if m.role == 'assistant' and loop.index0 > ns.last %}"
      "{{ '<think>\\n' + t + '\\n</think>\\n\\n' }}{% endif %}{{ c + '<|e|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant\\n' + head | default('') }}{% endif %}";
  const auto one = chat({{"user", "q"}, {"assistant", "<think>\nwhy\n</think>\n\nso"}});
  CHECK(spans_of(think, one) == "<|s|>user\nq<|e|>\n<|s|>assistant\n[<think>\nwhy\n</think>\n\nso<|e|>\n]");
  const std::vector<std::pair<std::string, std::string>> two = {{"user", "q"},
                                                                {"assistant", "<think>\nwhy\n</think>\n\nso"},
                                                                {"user", "r"},
                                                                {"assistant", "<think>\nx\n</think>\n\ny"}};
  CHECK(spans_of(think, chat(two)) ==
        "<|s|>user\nq<|e|>\n<|s|>assistant\n[so<|e|>\n]<|s|>user\nr<|e|>\n<|s|>assistant\n[<think>\nx\n</"
        "think>\n\ny<|e|>\n]");
  CHECK(spans_of(think, chat(kTwo)) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.<|e|>\n]<|s|>user\nBye<|e|>\n<|s|>assistant\n"
        "[<think>\n\n</think>\n\nGoodbye.<|e|>\n]");
  // The prompt opens the block itself: what the model never has to say is not trained, in earlier answers neither.
  Conversation headed = chat(two);
  headed.variables.emplace_back("head", "<think>\n");
  CHECK(spans_of(think, headed) ==
        "<|s|>user\nq<|e|>\n<|s|>assistant\n[so<|e|>\n]<|s|>user\nr<|e|>\n<|s|>assistant\n<think>\n[x\n</"
        "think>\n\ny<|e|>\n]");
}

TEST_CASE("answer spans: a prompt that has more than the rendering of the whole") {
  const std::string distilled =
      "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>' + m.content }}{% else %}"
      "{{ '<|answer|>' + m.content.split('</think>')[-1] + '<|over|>' }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|answer|><think>\\n' }}{% endif %}";
  CHECK(spans_of(distilled,
                 chat({{"user", "q"}, {"assistant", "<think>w</think>a"}, {"user", "r"}, {"assistant", "<b>"}}), {},
                 "<|over|>") == "<s><|user|>q<|answer|>[a<|over|>]<|user|>r<|answer|>[<b><|over|>]");
  CHECK(spans_of(distilled, chat({{"user", "q"}, {"assistant", "<think>\nopen"}}), {}, "<|over|>") ==
        "<s><|user|>q<|answer|><think>\n[open<|over|>]");
}

TEST_CASE("answer spans: tools and the system text before the last user message only, no generation prompt") {
  const std::string inst =
      "{{ bos_token }}{% set users = messages | selectattr('role', 'equalto', 'user') | list %}{% for m in messages %}"
      "{% if m.role == 'user' %}{% if tools and m == users[-1] %}{{ '[TOOLS]' + tools | tojson }}{% endif %}{{ "
      "'[INST]' }}"
      "{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}{{ m.content "
      "+ '[/INST]' }}"
      "{% elif m.tool_calls %}{{ '[CALLS]' + m.tool_calls | tojson + eos_token }}{% elif m.role == 'assistant' %}"
      "{{ m.content + eos_token }}{% elif m.role == 'tool' %}{{ '[RESULT]' + m.content + '[/RESULT]' }}{% endif %}{% "
      "endfor %}";
  CHECK(spans_of(inst,
                 chat({{"system", "S"}, {"user", "Hi"}, {"assistant", "Yo"}, {"user", "Hi"}, {"assistant", "Yo"}}), {},
                 "</s>") == "<s>[INST]Hi[/INST][Yo</s>][INST]Hi[/INST][Yo</s>]");
  const auto messages = json(R"([{"role": "user", "content": "w"},
      {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"n": 3}}]},
      {"role": "tool", "content": "r"}, {"role": "assistant", "content": "It is r."}, {"role": "user", "content": "w"},
      {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"s": "t"}}]}])");
  CHECK(spans_of(inst, conversation_of(messages, json(R"([{"name": "f"}])")), {}, "</s>") ==
        "<s>[TOOLS][{\"name\": \"f\"}][INST]w[/INST][[CALLS][{\"name\": \"f\", \"arguments\": {\"n\": "
        "3}}]</s>][RESULT]r[/RESULT]"
        "[It is r.</s>][TOOLS][{\"name\": \"f\"}][INST]w[/INST][[CALLS][{\"name\": \"f\", \"arguments\": {\"s\": "
        "\"t\"}}]</s>]");
}

TEST_CASE("answer spans: null content with calls, other marker behind calls, calls that the template leaves out") {
  const auto messages = json(R"([{"role": "user", "content": "w"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"city": "Rome"}}}]},
      {"role": "tool", "content": "{\"city\": \"Rome\"}"}, {"role": "assistant", "content": "Rome"}])");
  CHECK(spans_of(kChat, conversation_of(messages)) ==
        "<|s|>user\nw<|e|>\n<|s|>assistant\n[<call>f{\"city\": \"Rome\"}<|e|>\n]<|s|>tool\n{\"city\": \"Rome\"}<|e|>\n"
        "<|s|>assistant\n[Rome<|e|>\n]");
  CHECK(spans_of(kChat, conversation_of(messages), roles_option({"tool"}, TrainOnEos::none)) ==
        "<|s|>user\nw<|e|>\n<|s|>assistant\n<call>f{\"city\": \"Rome\"}<|e|>\n<|s|>tool\n[{\"city\": \"Rome\"}]<|e|>\n"
        "<|s|>assistant\nRome<|e|>\n");
  const std::string other =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + (m.content or '') }}{% if m.tool_calls %}"
      "{{ m.tool_calls[0].function.arguments | tojson + '<|over|>' }}{% else %}{{ '<|e|>' }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(other, conversation_of(messages), eos_option(TrainOnEos::none)) ==
        "<|s|>user:w<|e|><|s|>assistant:[{\"city\": \"Rome\"}]<|over|><|s|>tool:{\"city\": "
        "\"Rome\"}<|e|><|s|>assistant:[Rome]<|e|>");
  const std::string without =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + (m.content or '') + '<|e|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(without, conversation_of(messages)) ==
        "<|s|>user:w<|e|><|s|>assistant:[<|e|>]<|s|>tool:{\"city\": \"Rome\"}<|e|><|s|>assistant:[Rome<|e|>]");
  // A turn that is left out as a whole: nothing, and never the next one.
  const std::string skips =
      "{% for m in messages if m.content and m.role != 'tool' %}{{ '<|s|>' + m.role + ':' + m.content + '<|e|>' }}{% "
      "endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(skips, conversation_of(messages)) == "<|s|>user:w<|e|><|s|>assistant:[Rome<|e|>]");
  CHECK(refusal(skips, conversation_of(json(R"([{"role": "user", "content": "w"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"c": "d"}}}]}])"))) ==
        "messages[1] (assistant): nothing of it is trained, because the template leaves it out | use a template that "
        "writes "
        "such messages, or leave the row out");
}

TEST_CASE("answer spans: end of text only behind the last turn, behind all but the last, or nowhere") {
  const std::string head = "{% if add_generation_prompt %}{{ '\\nbot: ' }}{% endif %}";
  const std::string loop =
      "{% for m in messages %}{{ '\\n' + ('bot' if m.role == 'assistant' else m.role) + ': ' + m.content }}";
  CHECK(spans_of(loop + "{% endfor %}" + head, chat(kTwo), {}, "") ==
        "\nuser: Hi\nbot: [Hello.]\nuser: Bye\nbot: [Goodbye.]");
  CHECK(spans_of(loop + "{% if loop.last %}{{ '</s>' }}{% endif %}{% endfor %}" + head, chat(kTwo), {}, "</s>") ==
        "\nuser: Hi\nbot: [Hello.]\nuser: Bye\nbot: [Goodbye.</s>]");
  CHECK(spans_of(loop + "{% if m.role == 'assistant' and not loop.last %}{{ '</s>' }}{% endif %}{% endfor %}" + head,
                 chat(kTwo), {}, "</s>") == "\nuser: Hi\nbot: [Hello.</s>]\nuser: Bye\nbot: [Goodbye.]");
  // Two markers, the second one at the end of the text only; a space behind the marker is not of the answer.
  const std::string two =
      "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant\\n' }}{% else %}{{ eos_token }}{% endif %}";
  CHECK(
      spans_of(two, chat(kTwo), {}, "</s>") ==
      "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.<|e|>\n]<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.<|e|>\n</s>]");
  CHECK(
      spans_of(two, chat(kTwo), eos_option(TrainOnEos::none), "</s>") ==
      "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.]<|e|>\n<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.]<|e|>\n</s>");
  CHECK(spans_of("{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ "
                 "m.content }}</s> "
                 "{% endif %}{% endfor %}",
                 chat(kTwo), {}, "</s>") == "[INST] Hi [/INST][ Hello.</s>] [INST] Bye [/INST][ Goodbye.</s>] ");
  // The last answer is meant to be continued.
  CHECK(spans_of("{% for m in messages %}{{ '<|s|>' + m.role + ':' + m.content }}{% if not loop.last %}{{ '<|e|>' }}{% "
                 "endif %}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|e|><|s|>assistant:' }}{% endif %}",
                 chat(kTwo)) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello.<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[Goodbye.]");
}

TEST_CASE("answer spans: a head that is written behind every last message is not of the answer") {
  const std::string always =
      "{% for m in messages %}{{ '<|s|>' + m.role + '\\n' + m.content + '<|e|>\\n' }}{% endfor %}{{ "
      "'<|s|>assistant\\n' }}";
  CHECK(spans_of(always, chat(kTwo)) ==
        "<|s|>user\nHi<|e|>\n<|s|>assistant\n[Hello.<|e|>\n]<|s|>user\nBye<|e|>\n<|s|>assistant\n[Goodbye.<|e|>\n]<|s|>"
        "assistant\n");
}

TEST_CASE("answer spans: answers in one turn, a template without the head of its prompt, a prompt that has more") {
  const std::string joins =
      "{% for m in messages %}{% if loop.first or messages[loop.index0 - 1].role != m.role %}{{ '<|s|>' + m.role + ':' "
      "}}{% endif %}"
      "{{ m.content }}{% if loop.last or messages[loop.index].role != m.role %}{{ '<|e|>' }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(joins, chat({{"user", "Go"}, {"assistant", "One."}, {"assistant", "Two."}, {"user", "On"}})) ==
        "<|s|>user:Go<|e|><|s|>assistant:[One.][Two.<|e|>]<|s|>user:On<|e|>");
  const std::string headless =
      "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content + '<|e|>' }}{% else %}{{ '<|user|>' + "
      "m.content }}{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|answer|>' }}{% endif %}";
  CHECK(spans_of(headless, chat(kTwo)) == "<|user|>Hi[Hello.<|e|>]<|user|>Bye[Goodbye.<|e|>]");
  const std::string more =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' }}{% if m.role == 'assistant' and m.content %}{{ '>>>all:' "
      "}}{% endif %}"
      "{{ m.content + '<|e|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|s|>assistant:\\n>>>' }}{% endif %}";
  CHECK(contains(refusal(more, chat({{"user", "a"}, {"assistant", ""}})), "messages[1] (assistant): where"));
}

TEST_CASE("answer spans: templates that change texts, where marks would change the rendering") {
  const std::string capital =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + m.content | capitalize + '<|e|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(capital, chat({{"user", "hi"}, {"assistant", "hello"}, {"user", "bye"}, {"assistant", "so long"}})) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[So long<|e|>]");
  const std::string cut =  // the first ten characters of user texts
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + (m.content[:10] if m.role == 'user' else m.content) + "
      "'<|e|>' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(cut, chat({{"user", "twelve bytes and more"}, {"assistant", "hello"}})) ==
        "<|s|>user:twelve byt<|e|><|s|>assistant:[hello<|e|>]");
  const std::string twice =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + m.content + '/' + m.content + '<|e|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(twice, chat(kTwo)) ==
        "<|s|>user:Hi/Hi<|e|><|s|>assistant:[Hello./Hello.<|e|>]<|s|>user:Bye/Bye<|e|><|s|>assistant:[Goodbye./"
        "Goodbye.<|e|>]");
  const std::string numbered =  // no rendering of a part is the beginning of the whole
      "{{ messages | length }}{% for m in messages %}{{ '<|s|>' + m.role + ':' + m.content + '<|e|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(numbered, chat(kTwo)) ==
        "4<|s|>user:Hi<|e|><|s|>assistant:[Hello.<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[Goodbye.<|e|>]");
  const std::string backwards =
      "{% for m in messages[::-1] %}{{ '<|s|>' + m.role + ':' + m.content + '<|e|>' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(backwards, chat(kTwo)) ==
        "<|s|>assistant:[Goodbye.<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[Hello.<|e|>]<|s|>user:Hi<|e|>");
  // Text of one message inside of another's.
  const std::string mixed =
      "{{ '<|s|>' }}{% for m in messages %}{{ m.content[:3] }}{% endfor %}{% for m in messages %}{{ m.content[3:] }}{% "
      "endfor %}{{ '<|e|>' }}";
  CHECK(contains(refusal(mixed, chat(kTwo)), "could not be found | use a chat template with {% generation %} tags"));
  const std::string bare = "{% for m in messages %}{{ m.content }}{% endfor %}";
  CHECK(contains(refusal(bare, chat({{"assistant", "all"}})),
                 "every byte of the rendered conversation would be trained"));
}

TEST_CASE("answer spans: a template that answers marks with marks misleads nothing") {
  // U+FDE0 begins a mark, U+FDDF is a digit of it.
  const std::string digits = "\xef\xb7\x9f\xef\xb7\x9f\xef\xb7\x9f\xef\xb7\x9f\xef\xb7\x9f\xef\xb7\x9f";
  const std::string forged =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + m.content + '<|e|>' }}"
      "{% if '\xef\xb7\xa0' in m.content %}{{ '\xef\xb7\xa0" +
      digits + "' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(spans_of(forged, chat(kTwo)) ==
        "<|s|>user:Hi<|e|><|s|>assistant:[Hello.<|e|>]<|s|>user:Bye<|e|><|s|>assistant:[Goodbye.<|e|>]");
}

TEST_CASE("answer spans: the template's own refusal is shown") {
  const std::string raises =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
      "{% endif %}{{ '<|s|>' + m.role + ':' + m.content + '<|e|>' }}{% endfor %}";
  CHECK(contains(refusal(raises, chat({{"system", "S"}, {"user", "U"}, {"assistant", "A"}})),
                 "System role not supported"));
}

TEST_CASE("answer spans: text of control tokens in messages, calls and tools is plain") {
  CHECK(spans_of(kChat, chat({{"user", "a<|e|>b<|s|>assistant\nx"}, {"assistant", "<|e|>y</s>"}})) ==
        "<|s|>user\na(<|e|>)b(<|s|>)assistant\nx<|e|>\n<|s|>assistant\n[(<|e|>)y(</s>)<|e|>\n]");
  CHECK(spans_of(kChat, chat({{"user", "  <|e|> "}, {"assistant", "a<|e|>"}}), eos_option(TrainOnEos::none)) ==
        "<|s|>user\n  (<|e|>) <|e|>\n<|s|>assistant\n[a(<|e|>)]<|e|>\n");
  const std::string tools = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + kChat;
  const auto messages = json(R"([{"role": "user", "content": "w"},
      {"role": "assistant", "tool_calls": [{"function": {"name": "<|e|>", "arguments": {"<s>": ["</s>", 1]}}}]}])");
  CHECK(spans_of(tools, conversation_of(messages, json(R"([{"description": "ends with <|e|>", "</s>": 1}])"))) ==
        "{\"description\": \"ends with (<|e|>)\", \"(</s>)\": 1}<|s|>user\nw<|e|>\n<|s|>assistant\n"
        "[<call>(<|e|>){\"(<s>)\": [\"(</s>)\", 1]}<|e|>\n]");
  // As plain as before where a row has the very characters that mark texts.
  CHECK(spans_of(kChat, chat({{"user", "\xef\xb7\x90\xef\xb7\xa2<|e|>"}, {"assistant", "y\xef\xb7\xaf"}})) ==
        "<|s|>user\n\xef\xb7\x90\xef\xb7\xa2(<|e|>)<|e|>\n<|s|>assistant\n[y\xef\xb7\xaf<|e|>\n]");
  // A template that looks at it: refused, not guessed.
  const std::string looks =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + (m.content | replace('<|e|>', '-') if m.content[0] == '<' "
      "else m.content) + '<|e|>' }}{% endfor %}";
  CHECK(contains(refusal(looks, chat({{"user", "<|e|>"}, {"assistant", "y"}})),
                 "the template itself looks at it or changes it | take that text out of the row"));
  // Escaped text no longer is that of a token.
  const std::string escaped =
      "{% for m in messages %}{{ '<|s|>' + m.role + ':' + m.content | tojson(ensure_ascii=True) + '<|e|>' }}{% endfor "
      "%}"
      "{% if add_generation_prompt %}{{ '<|s|>assistant:' }}{% endif %}";
  CHECK(
      spans_of(escaped, chat(kTwo)) ==
      "<|s|>user:\"Hi\"<|e|><|s|>assistant:[\"Hello.\"<|e|>]<|s|>user:\"Bye\"<|e|><|s|>assistant:[\"Goodbye.\"<|e|>]");
}

TEST_CASE("answer spans: the plain form is used, and only where every byte is as it says") {
  const auto parsed = template_of(kChat);
  const ControlText control(kControl);
  const TemplateFacts facts = learn_facts(*parsed, control, "<|e|>", false);
  CHECK(facts.head == "<|s|>assistant\n");
  CHECK(facts.core == facts.head.size());
  CHECK(facts.markers.contains("<|e|>"));
  CHECK(!facts.markers.contains("<|s|>"));
  const RegularForm form = RegularForm::learn(*parsed, control, facts);
  Conversation c = chat(kTwo);
  const std::string text = parsed->render({.messages = c.messages}).text;
  const auto places = form.places(c, text);
  REQUIRE(places.has_value());
  CHECK(text.substr((*places)[1].begin, (*places)[1].end - (*places)[1].begin) == "Hello.<|e|>\n");
  CHECK(text.substr((*places)[0].marker, (*places)[0].end - (*places)[0].marker) == "<|e|>");
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    CHECK(!form.places(c, other).has_value());
  }
  CHECK(!form.places(c, text + " ").has_value());
  CHECK(!form.places(c, text.substr(1)).has_value());
}

TEST_CASE("answer spans: variables of the row reach the template, but not what is rendered") {
  const std::string source = "{{ bos_token }}{{ note | default('') }}" + kChat;
  const Conversation c =
      conversation_of(json(R"([{"role": "user", "content": "<|e|>"}, {"role": "assistant", "content": "A"}])"), nullptr,
                      json(R"({"add_generation_prompt": true, "messages": [], "note": "n</s>", "bos_token": "<s>"})"));
  CHECK(spans_of(source, c) == "<s>n(</s>)<|s|>user\n(<|e|>)<|e|>\n<|s|>assistant\n[A<|e|>\n]");
}

TEST_CASE("answer spans: long conversations take time that grows with their length") {
  const auto seconds = [&](size_t turns, const std::string& source) {
    auto messages = ordered_json::array();
    for (size_t i = 0; i < turns; ++i) {
      messages.push_back({{"role", "user"}, {"content", i % 3 == 0 ? "" : "Question " + std::to_string(i)}});
      messages.push_back({{"role", "assistant"}, {"content", "<think>\nwhy\n</think>\n\nAnswer " + std::to_string(i)}});
    }
    const AnswerSpans spans(template_of(source), kControl, "<|e|>");
    const Conversation c = conversation_of(messages);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(spans.render(c).trained.size() == turns);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const std::string numbered = "{{ messages | length }}" + kChat;
  CHECK(seconds(2000, kChat) < 5);
  CHECK(seconds(2000, numbered) < 5);
  // Every turn written in another way: a clear end rather than hours.
  const std::string each =
      "{{ messages | length }}{% for m in messages %}{{ '<|s|>' ~ loop.index ~ m.role + '\\n' + m.content + '<|e|>\\n' "
      "}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|s|>' ~ (messages | length + 1) ~ 'assistant\\n' }}{% endif %}";
  auto messages = ordered_json::array();
  for (int i = 0; i < 2200; ++i) messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", "x"}});
  CHECK(contains(refusal(each, conversation_of(messages)), "which the template writes in too many different ways"));
}

TEST_CASE("answer spans: the same from many threads") {
  const AnswerSpans spans(template_of("{{ messages | length }}" + kChat), kControl, "<|e|>");
  const std::string want = shown(spans.render(chat(kTwo)));
  std::vector<std::thread> threads;
  std::vector<int> bad(4, 0);
  for (int& count : bad) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += shown(spans.render(chat(kTwo))) != want;
    });
  }
  for (auto& t : threads) t.join();
  CHECK(bad == std::vector<int>(4, 0));
}

TEST_CASE("control text: every place, also overlapping ones, in linear time") {
  const ControlText control({"<a>", "<a><b", "a>x", "", "<a>", "q"});
  const auto spans = [&](std::string_view text) {
    std::string out;
    for (const TextSpan s : control.find(text)) out += str(s.begin, "-", s.end, " ");
    return out;
  };
  CHECK(spans("") == "");
  CHECK(spans("<a") == "");
  CHECK(spans("<a><a>") == "0-3 3-6 ");
  CHECK(spans("<<a><b>") == "1-6 ");
  CHECK(spans("<a>x<a>x") == "0-4 4-8 ");
  CHECK(spans("zqz") == "1-2 ");
  CHECK(control.starts("<a><b>") == 5);
  CHECK(control.starts("<a><") == 3);
  CHECK(control.starts("x<a>") == 0);
  CHECK(control.ends("x<a>") == 3);
  CHECK(control.ends("x<a") == 0);
  CHECK(control.in("..<a>"));
  CHECK(!control.in("..<a"));
  CHECK(!ControlText({}).in("<a>"));
  const ControlText deep({std::string(5000, '<') + ">"});
  CHECK(deep.find(std::string(2'000'000, '<')).empty());
}
