// SPDX-License-Identifier: Apache-2.0
// The named templates: their tags mark what is found without them, whatever the messages are.
#include <doctest/doctest.h>

#include "chat_testing.h"
#include "finetune/text/named_templates.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

const std::vector<std::string> kControl = {
    "<s>",        "</s>",     "<|im_start|>",  "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",    "<start_of_turn>",     "<end_of_turn>"};

// The same text without tags: a tag takes away the same white space as an if that is always true.
std::string without_tags(std::string source) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    size_t count = 0;
    for (size_t at = 0; (at = source.find(from, at)) != std::string::npos; ++count) source.replace(at, from.size(), to);
    return count;
  };
  CHECK(replace("{%- generation %}", "{%- if true %}") == 1);
  CHECK(replace("{%- endgeneration %}", "{%- endif %}") == 1);
  return source;
}

struct Pair {
  AnswerSpans tagged, found;
};
Pair pair_of(const NamedTemplate& named, const MaskOptions& options) {
  const auto spans = [&](const std::string& source) {
    return AnswerSpans(template_of(source, "</s>", "<s>"), kControl, "</s>", options);
  };
  return {spans(named.source), spans(without_tags(named.source))};
}

std::string outcome(const AnswerSpans& spans, const Conversation& c) {
  try {
    return shown(spans.render(c));
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::data);
    return "refused";  // the place in the template differs
  }
}

MaskOptions options_of(TrainOnEos eos, std::vector<std::string> roles) {
  return {.roles_to_train = std::move(roles), .train_on_eos = eos};
}

const std::vector<MaskOptions> kOptions = {
    options_of(TrainOnEos::turn, {"assistant"}), options_of(TrainOnEos::last, {"assistant"}),
    options_of(TrainOnEos::all, {"assistant"}), options_of(TrainOnEos::none, {"assistant"}),
    options_of(TrainOnEos::turn, {"user", "assistant"})};

}  // namespace

TEST_CASE("named templates: tags mark what is found without them, on chosen conversations") {
  const std::vector<std::vector<std::pair<std::string, std::string>>> chats = {
      {{"user", "Hi"}, {"assistant", "Hello."}},
      {{"system", "Be terse."}, {"user", "Hi"}, {"assistant", "Hello."}},
      {{"user", "Hi"}, {"assistant", "Hello."}, {"user", "Bye"}, {"assistant", "So long."}},
      {{"system", "S"},
       {"user", "a"},
       {"assistant", "b"},
       {"user", "c"},
       {"assistant", "d"},
       {"user", "e"},
       {"assistant", "f"}},
      {{"user", "Hi"}, {"assistant", "Hi"}, {"user", "Hi"}, {"assistant", "Hi"}},
      {{"user", "Ende gut \u00fc\u00e4"}, {"assistant", "\u4f60\u597d\uff0c \U0001F600\u200d\U0001F600 e\u0301"}},
      {{"user", "  a \n"}, {"assistant", "\n b  "}, {"user", "\tc"}, {"assistant", "d\n\n"}},
      {{"user", "a"}, {"assistant", "one\n\ntwo\r\nthree"}},
      {{"user", "say </s> and <|im_end|>"}, {"assistant", "<|im_end|></s><|eot_id|>"}},
      {{"user", "a"}, {"assistant", "b"}, {"user", "and?"}},
      {{"user", "a"}, {"assistant", ""}, {"user", "b"}, {"assistant", "c"}},
      {{"user", ""}, {"assistant", "a"}, {"user", " \n"}, {"assistant", "c"}},
  };
  for (const NamedTemplate& named : named_templates()) {
    CAPTURE(named.name);
    for (const MaskOptions& options : kOptions) {
      const Pair pair = pair_of(named, options);
      size_t rendered = 0;
      for (const auto& messages : chats) {
        const std::string tagged = outcome(pair.tagged, chat(messages));
        CHECK(outcome(pair.found, chat(messages)) == tagged);
        rendered += tagged != "refused";
        if (tagged != "refused") CHECK(contains(tagged, "["));
      }
      CHECK(rendered >= chats.size() - 2);  // gemma takes no system turn
    }
  }
}

TEST_CASE("named templates: tags mark what is found without them, on random conversations") {
  const std::vector<std::string> pieces = {"Hi",         " ",         "\n",
                                           "user",       "assistant", "\u65e5\u672c",
                                           "\U0001F600", "\t",        "### Response:\n",
                                           "[/INST]",    "</s>",      "<|im_end|>\n",
                                           "USER: ",     ".",         "<"};
  RandomText random(5);
  for (const NamedTemplate& named : named_templates()) {
    CAPTURE(named.name);
    const Pair pair = pair_of(named, {}), both = pair_of(named, kOptions.back());
    size_t rendered = 0;
    for (int i = 0; i < 150; ++i) {
      std::vector<std::pair<std::string, std::string>> messages;
      const auto text = [&] {
        std::string out = "x";  // a message without text may stand anywhere in a text that is rewritten
        for (uint32_t n = random.next() % 5; n > 0; --n) out += pieces[random.next() % pieces.size()];
        return random.next() % 2 == 0 ? out : out.substr(1) + "y";
      };
      if (random.next() % 3 == 0) messages.emplace_back("system", text());
      for (uint32_t n = 1 + random.next() % 4; n > 0; --n) {
        messages.emplace_back("user", text());
        messages.emplace_back("assistant", text());
      }
      const Conversation c = chat(messages);
      const std::string tagged = outcome(pair.tagged, c);
      CHECK(outcome(pair.found, c) == tagged);
      CHECK(outcome(both.found, c) == outcome(both.tagged, c));
      rendered += tagged != "refused";
    }
    CHECK(rendered > 80);
  }
}

TEST_CASE("named templates: calls, results and reasoning are marked as they are found, in chatml") {
  const auto messages = ordered_json::parse(R"([{"role": "user", "content": "w"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"c": "Rome"}}},
       {"function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "content": "sun"}, {"role": "assistant", "content": "Sun.", "reasoning_content": "so it is"},
      {"role": "user", "content": "w"}, {"role": "assistant", "content": "say", "tool_calls":
       [{"function": {"name": "f", "arguments": {"c": "Oslo"}}}]}])");
  const auto tools = ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  for (const MaskOptions& options : kOptions) {
    const Pair pair = pair_of(named_template("chatml"), options);
    for (const auto& with : {ordered_json(), tools}) {
      const std::string tagged = outcome(pair.tagged, conversation_of(messages, with));
      CHECK(contains(tagged, "<tool_call>"));
      CHECK(outcome(pair.found, conversation_of(messages, with)) == tagged);
    }
  }
}

TEST_CASE("named templates: the end of text behind the last answer of phi3 is trained with it, as published") {
  const Pair pair = pair_of(named_template("phi3"), {});
  CHECK(outcome(pair.tagged, chat({{"user", "a"}, {"assistant", "b"}})) ==
        "<|user|>\na<|end|>\n<|assistant|>\n[b<|end|>\n</s>]");
  CHECK(outcome(pair.tagged, chat({{"user", "a"}, {"assistant", "b"}, {"user", "c"}})) ==
        "<|user|>\na<|end|>\n<|assistant|>\n[b<|end|>\n]<|user|>\nc<|end|>\n</s>");
}
