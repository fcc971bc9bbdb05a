// SPDX-License-Identifier: Apache-2.0
// Alpaca rows, the type of a dataset by its first row, and rows in which anything stands anywhere.
#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "conversation_testing.h"
#include "finetune/data/chat/conversation.h"
#include "finetune/data/data_report.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

std::string alpaca(const char* row, const DatasetSpec& spec = {}) {
  try {
    const Conversation c = read_alpaca(ordered_json::parse(row), spec);
    for (size_t i = 0; i < c.turns.size(); ++i) {
      CHECK(c.turns[i].role == c.messages.items()[i].find("role")->text());
      CHECK(c.turns[i].train == std::nullopt);  // answers of the history are answers
    }
    return json_text(c.messages);
  } catch (const Error& e) {
    return e.what();
  }
}

std::string detected(const char* row, const DatasetSpec& spec = {}) {
  try {
    return name_of(detect_type(ordered_json::parse(row), spec));
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::data);
    return str(e.what(), " | ", e.hint());
  }
}

}  // namespace

TEST_CASE("conversation: alpaca") {
  CHECK(alpaca(R"({"instruction": "Add.", "input": "1 2", "output": "3"})") ==
        R"([{"role": "user", "content": "Add.\n1 2", "instruction": "Add.", "input": "1 2"}, )"
        R"({"role": "assistant", "content": "3"}])");
  CHECK(alpaca(R"({"instruction": "Add.", "output": ""})") ==
        R"([{"role": "user", "content": "Add."}, {"role": "assistant", "content": ""}])");
  CHECK(alpaca(R"({"instruction": "", "input": "1 2", "output": "3", "system": null, "history": null})") ==
        R"([{"role": "user", "content": "1 2"}, {"role": "assistant", "content": "3"}])");
  CHECK(
      alpaca(
          R"({"instruction": "c", "input": "", "output": "d", "system": "S", "history": [["a", "b"], ["", "x"]]})") ==
      R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
      R"({"role": "user", "content": ""}, {"role": "assistant", "content": "x"}, )"
      R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])");
  DatasetSpec spec;
  spec.field_instruction = "q", spec.field_input = "ctx", spec.field_output = "a", spec.field_system = "s";
  CHECK(
      alpaca(R"({"q": "Q", "ctx": "C", "a": "A", "s": "S", "input": 5})", spec) ==
      R"([{"role": "system", "content": "S"}, )"
      R"({"role": "user", "content": "Q\nC", "instruction": "Q", "input": "C"}, {"role": "assistant", "content": "A"}])");
  CHECK(alpaca(R"({"output": "d"})") == "instruction: this field is missing; the row has output");
  CHECK(alpaca(R"({"instruction": "d", "response": "x"})") ==
        "output: this field is missing; the row has instruction, response");
  CHECK(alpaca(R"({"instruction": "d", "output": null})") == "output: expected text, found null");
  CHECK(alpaca(R"({"instruction": "d", "output": ["x"]})") == "output: expected text, found a list");
  CHECK(alpaca(R"({"instruction": "d", "input": 5, "output": "x"})") == "input: expected text, found number");
  CHECK(alpaca(R"({"instruction": "d", "system": {}, "output": "x"})") == "system: expected text, found an object");
  CHECK(alpaca(R"({"instruction": "", "input": "", "output": "x"})") ==
        "instruction: expected text, found empty text and no input");
  CHECK(alpaca(R"({"instruction": "d", "output": "x", "history": "no"})") ==
        "history: expected a list of [question, answer], found text");
  CHECK(alpaca(R"({"instruction": "d", "output": "x", "history": [["a", "b"], ["a"]]})") ==
        "history[1]: expected [question, answer], found a list of 1");
  CHECK(alpaca(R"({"instruction": "d", "output": "x", "history": ["a"]})") ==
        "history[0]: expected [question, answer], found text");
  CHECK(alpaca(R"({"instruction": "d", "output": "x", "history": [["a", null]]})") ==
        "history[0][1]: expected text, found null");
}

TEST_CASE("conversation: the type of a row") {
  for (const auto& [row, type] : std::vector<std::pair<const char*, std::string>>{
           {R"({"messages": [], "text": "x"})", "chat"},
           {R"({"conversations": [{"from": "human", "value": "x"}], "tools": "[]"})", "chat"},
           {R"({"dialog": [], "id": 1})", "chat"},
           {R"({"conversation": " [{\"role\": \"user\"}]"})", "chat"},
           {R"({"prompt": [], "completion": []})", "chat"},
           {R"({"prompt": "x", "completion": "y", "text": "z"})", "prompt_completion"},
           {R"({"prompt": "x", "prompt_id": "y", "messages": [{}]})", "chat"},
           {R"({"instruction": "x", "input": "", "output": "y", "text": "z"})", "alpaca"},
           {R"({"instruction": "x", "output": "y"})", "alpaca"},
           {R"({"text": "x", "label": 1})", "text"},
           {R"({"text": "x", "label": true})", "text"},
           {R"({"conversation": "A: hi", "text": "x"})", "text"},
           // refused by name
           {R"({"input_ids": [1], "labels": [1]})",
            "tokenised rows (input_ids): they belong to one tokenizer, and are not read; the row has input_ids, labels "
            "| give "
            "the rows as they were before tokenising"},
           {R"({"chosen": [{}], "rejected": [{}]})",
            "preference data (chosen and rejected), which this training does not use; the row has chosen, rejected | "
            "to train "
            "on the chosen answers: type: chat, field_messages: chosen"},
           {R"({"prompt": "p", "chosen": "a", "rejected": "b", "messages": []})",
            "preference data (chosen and rejected), which this training does not use; the row has prompt, chosen, "
            "rejected, "
            "messages | to train on the chosen answers: type: prompt_completion, field_completion: chosen"},
           {R"({"chosen": "a", "rejected": "b"})",
            "preference data (chosen and rejected), which this training does not use; the row has chosen, rejected | "
            "to train "
            "on the chosen texts: type: text, field_text: chosen"},
           {R"({"messages": [{}], "label": false})",
            "preference data (label: true or false says whether the answer is wanted), which this training does not "
            "use; the "
            "row has messages, label | take out the rows with false, or name the type (chat, prompt_completion) to "
            "train on "
            "all of them"},
           // not guessed
           {R"({"question": "q", "answer": "a"})",
            "no known shape of a row; the row has question, answer | write type: prompt_completion, field_prompt: "
            "question, "
            "field_completion: answer"},
           {R"({"query": "q", "response": "a"})",
            "no known shape of a row; the row has query, response | write type: prompt_completion, field_prompt: "
            "query, "
            "field_completion: response"},
           {R"({"problem": "q", "solution": "a", "n": 1})",
            "no known shape of a row; the row has problem, solution, n | write type: prompt_completion, field_prompt: "
            "problem, "
            "field_completion: solution"},
           {R"({"input": "q", "output": "a"})",
            "no known shape of a row; the row has input, output | write type: prompt_completion, field_prompt: input, "
            "field_completion: output"},
           {R"({"instruction": "q", "response": "a"})",
            "no known shape of a row; the row has instruction, response | write type: alpaca, field_output: response"},
           {R"({"instruction": "q", "context": "c", "response": "a", "category": "x"})",
            "no known shape of a row; the row has instruction, context, response, category | write type: alpaca, "
            "field_output: response, field_input: context"},
           {R"({"prompt": "p", "test": "t", "canonical_solution": "c"})",
            "no known shape of a row; the row has prompt, test, canonical_solution | write type: prompt_completion, "
            "field_completion: canonical_solution"},
           {R"({"subject": "s", "body": "b"})",
            "no known shape of a row; the row has subject, body | known are: messages or conversations (chat); prompt "
            "and "
            "completion; instruction, input and output (alpaca); text. Other names: type and field_... of the dataset"},
           {R"({"text": 5})",
            "no known shape of a row; the row has text | known are: messages or conversations (chat); prompt and "
            "completion; "
            "instruction, input and output (alpaca); text. Other names: type and field_... of the dataset"},
           {"[]", "expected an object, found array | "},
       }) {
    CAPTURE(std::string(row));
    CHECK(detected(row) == type);
  }
  // what the spec names counts
  DatasetSpec spec;
  spec.field_prompt = "question", spec.field_completion = "answer";
  CHECK(detected(R"({"question": "q", "answer": "a"})", spec) == "prompt_completion");
  spec = {}, spec.field_messages = "chosen";
  CHECK(detected(R"({"chosen": [{}]})", spec) == "chat");
  spec = {}, spec.field_text = "body";
  CHECK(detected(R"({"subject": "s", "body": "b"})", spec) == "text");
  spec = {}, spec.field_output = "response";
  CHECK(detected(R"({"instruction": "q", "response": "a"})", spec) == "alpaca");
}

namespace {

// Each place of a value, and the value with something else there.
void replace_each(const ordered_json& whole, const ordered_json::json_pointer& at,
                  const std::vector<ordered_json>& others, const std::function<void(const ordered_json&)>& use) {
  for (const auto& other : others) {
    ordered_json changed = whole;
    changed[at] = other;
    use(changed);
  }
  const ordered_json& here = whole[at];
  if (!here.is_structured()) return;
  for (const auto& [key, value] : here.items()) {
    if (here.is_object()) {
      ordered_json changed = whole;
      changed[at].erase(key);
      use(changed);
      replace_each(whole, at / key, others, use);
    } else {
      replace_each(whole, at / static_cast<size_t>(std::stoul(key)), others, use);
    }
  }
}

}  // namespace

TEST_CASE("conversation: whatever stands where, a row is read or refused in one line") {
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  const std::vector<ordered_json> others = {nullptr,
                                            true,
                                            5,
                                            -0.5,
                                            UINT64_MAX,
                                            "",
                                            "x",
                                            "[",
                                            "[{}]",
                                            "{\"name\": \"f\"}",
                                            "\n\u0000",
                                            ordered_json::array(),
                                            ordered_json::object(),
                                            ordered_json::array({1, "a", nullptr}),
                                            ordered_json::array({ordered_json::object()}),
                                            ordered_json{{"type", "text"}},
                                            ordered_json::parse(R"([{"type": "text", "text": 5}])"),
                                            ordered_json::parse(R"([{"type": "tool_call", "value": "[5]"}])"),
                                            ordered_json::parse(deep),
                                            deep};
  size_t read = 0, refused = 0;
  for (
      const char* row : {
          R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "value": "b"}]},
               {"role": "assistant", "content": null, "train": true, "weight": 1, "tool_calls": [{"id": "1", "type":
               "function", "function": {"name": "f", "arguments": "{\"a\": [1]}"}}]}, {"role": "tool", "content": {"a": 1}}],
               "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
               "chat_template_kwargs": {"a": 1}})",
          R"({"conversations": [{"from": "human", "value": "a", "loss_weight": 0.5}, {"from": "function_call", "value":
               "[{\"name\": \"f\"}]"}, {"from": "gpt", "value": "b"}], "system": "S", "tools": "[{\"name\": \"f\"}]"})",
          R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})",
          R"({"instruction": "a", "input": "b", "output": "c", "system": "S", "history": [["a", "b"]]})",
      }) {
    replace_each(ordered_json::parse(row), ordered_json::json_pointer(), others, [&](const ordered_json& changed) {
      CAPTURE(changed.dump());
      for (int reader = 0; reader < 3; ++reader) {
        try {
          if (reader == 0) read += read_chat(changed, {}).turns.empty() ? 0 : 1;
          if (reader == 1) read += read_alpaca(changed, {}).turns.empty() ? 0 : 1;
          if (reader == 2) detect_type(changed, {});
        } catch (const Error& e) {
          ++refused;
          CHECK(e.code() == ErrorCode::data);
          CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
          CHECK(std::string_view(e.what()).size() < 600);
        }
      }
    });
  }
  CHECK(read > 300);
  CHECK(refused > 1000);
}
