// SPDX-License-Identifier: Apache-2.0
// Rows of chat data in the shapes that people have them, as one conversation; and what is said of rows that are none.
#include "finetune/data/chat/conversation.h"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "conversation_testing.h"

using namespace bantam;
using namespace bantam::testing;
using nlohmann::ordered_json;

namespace {

struct Case {
  const char* row;
  std::string messages;  ///< as JSON
};

void check(const std::vector<Case>& cases, const DatasetSpec& spec = {}) {
  for (const auto& [row, messages] : cases) {
    CAPTURE(std::string(row));
    std::string found;
    try {
      const Conversation c = read_chat(ordered_json::parse(row), spec);
      found = json_text(c.messages);
      CHECK(c.turns.size() == c.messages.items().size());
      for (size_t i = 0; i < c.turns.size(); ++i) CHECK(c.turns[i].role == c.messages.items()[i].find("role")->text());
    } catch (const Error& e) {
      found = e.what();
    }
    CHECK(found == messages);
  }
}

void check_errors(const std::vector<std::pair<const char*, std::string>>& cases, const DatasetSpec& spec = {}) {
  for (const auto& [row, message] : cases) {
    CAPTURE(std::string(row));
    CHECK(chat_error(row, spec) == message);
  }
}

const std::string kHi = R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}])";
const std::string kCalled =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": )"
    R"([{"type": "function", "function": {"name": "f", "arguments": {"x": 1.0, "é": [null]}}}]}])";

}  // namespace

TEST_CASE("conversation: OpenAI messages") {
  check({
      {R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})", kHi},
      // every role stays what it is; so do two turns of one speaker, empty text, and other keys
      {R"({"messages": [{"role": "developer", "content": "a"}, {"role": "critic", "content": ""},
           {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c", "name": "Bo", "x": {"y": [1]}},
           {"role": "human", "content": "d", "reasoning_content": "because"}]})",
       R"([{"role": "developer", "content": "a"}, {"role": "critic", "content": ""}, )"
       R"({"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c", "name": "Bo", "x": {"y": [1]}}, )"
       R"({"role": "human", "content": "d", "reasoning_content": "because"}])"},
      // keys that are null are no keys (what Arrow makes of rows that differ), but for the content of a call
      {R"({"messages": [{"role": "user", "content": "Hi", "name": null, "tool_calls": null},
           {"role": "assistant", "content": "Yo", "tool_calls": [], "function_call": null}], "tools": null})",
       kHi},
      {R"({"messages": [{"content": "Hi", "role": "user"}]})", R"([{"content": "Hi", "role": "user"}])"},
      {R"({"messages": [{"role": "user", "content": "CR\r\n\u0000 \ud83d\ude00"}]})",
       "[{\"role\": \"user\", \"content\": \"CR\\r\\n\\u0000 \U0001F600\"}]"},
      // reasoning alone
      {R"({"messages": [{"role": "assistant", "content": null, "reasoning_content": "hm"}]})",
       R"([{"role": "assistant", "content": null, "reasoning_content": "hm"}])"},
      {R"({"messages": [{"role": "assistant", "thinking": "hm"}]})", R"([{"role": "assistant", "thinking": "hm"}])"},
      // JSON text of the list, as CSV files hold it
      {R"({"messages": " [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yo\"}]"})",
       kHi},
      // other names of the list
      {R"({"conversations": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})", kHi},
      {R"({"conversation": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})", kHi},
      {R"({"messages": null, "dialog": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})",
       kHi},
  });
}

TEST_CASE("conversation: content in parts") {
  check({
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
           {"role": "assistant", "content": [{"type": "output_text", "text": "Yo", "annotations": null}]}]})",
       kHi},
      {R"({"messages": [{"role": "user", "content": ["Hi"]}, {"role": "assistant", "content": "Yo"}]})", kHi},
      // several stay a list, for templates that take one
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": ""}]}]})",
       R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]}])"},
      // not so what a tool said
      {R"({"messages": [{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})",
       R"([{"role": "tool", "content": "a\nb"}])"},
      // LLaMA-Factory's: one text, reasoning and calls as keys
      {R"({"messages": [{"role": "assistant", "content": [{"type": "reasoning", "value": "hm"},
           {"type": "text", "value": "a"}, {"type": "text", "value": "b"}]}]})",
       R"([{"role": "assistant", "content": "ab", "reasoning_content": "hm"}])"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "reasoning", "value": "hm"},
           {"type": "tool_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
           {"type": "tool_call", "value": "{\"name\": \"g\", \"arguments\": {\"x\": 1}}"}]}]})",
       R"([{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [)"
       R"({"type": "function", "function": {"name": "f", "arguments": {}}}, )"
       R"({"type": "function", "function": {"name": "g", "arguments": {"x": 1}}}]}])"},
  });
  check_errors({
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}]})",
       "messages[0].content[1]: a part of type image_url: only text can be trained on"},
      {R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})",
       "messages[0].content[0]: a part of type input_audio: only text can be trained on"},
      {R"({"messages": [{"role": "user", "content": [{"type": "smell"}]}]})",
       "messages[0].content[0]: a part of type 'smell', known are text, reasoning, tool_call"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "txt": "a"}]}]})",
       "messages[0].content[0]: expected text, found type, txt"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]})",
       "messages[0].content[0].text: expected text, found number"},
      {R"({"messages": [{"role": "user", "content": [{"text": "a"}]}]})",
       "messages[0].content[0]: expected a part with a type, found text"},
      {R"({"messages": [{"role": "user", "content": [5]}]})",
       "messages[0].content[0]: expected a part such as {\"type\": \"text\", \"text\": ...}, found number"},
      {R"({"messages": [{"role": "user", "content": [{"type": 5}]}]})",
       "messages[0].content[0].type: expected text, found number"},
      {R"({"messages": [{"role": "user", "content": []}]})", "messages[0].content: expected text, found an empty list"},
      {R"({"messages": [{"role": "assistant", "reasoning_content": "a", "content": [{"type": "reasoning", "value": "b"}]}]})",
       "messages[0]: reasoning stands in the parts of the content and in a key of its own"},
      {R"({"messages": [{"role": "user", "content": "<image> what?"}], "images": ["a.png", "b.png"]})",
       "images: the row comes with 2 of them; only text can be trained on"},
  });
}

TEST_CASE("conversation: tool calls, arguments as JSON text or as an object, in every form the same") {
  check({
      {R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [
           {"type": "function", "function": {"name": "f", "arguments": {"x": 1.0, "é": [null]}}}]}]})",
       kCalled},
      {R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [
           {"type": "function", "function": {"name": "f", "arguments": "{ \"x\":1.0,\n\"\\u00e9\": [null]}"}}]}]})",
       kCalled},
      {R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls": [
           {"name": "f", "arguments": "{\"x\": 1.0, \"é\": [null]}"}]}]})",
       kCalled},
      {R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null, "tool_calls":
           "[{\"name\": \"f\", \"arguments\": {\"x\": 1.0, \"é\": [null]}}]"}]})",
       kCalled},
      {R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null,
           "function_call": {"name": "f", "arguments": "{\"x\": 1.0, \"é\": [null]}"}}]})",
       kCalled},
      {R"({"conversations": [{"from": "human", "value": "Hi"},
           {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1.0, \"é\": [null]}}"}]})",
       kCalled},
      {R"({"conversations": [{"from": "human", "value": "Hi"},
           {"from": "tool_call", "value": [{"name": "f", "parameters": {"x": 1.0, "é": [null]}}]}]})",
       kCalled},
      // nulls of the call itself go, those of the arguments stay; ids stay; parallel calls; no arguments
      {R"({"messages": [{"role": "assistant", "tool_calls": [
           {"id": "c1", "type": "function", "index": null, "function": {"name": "f", "arguments": {"a": null}, "d": null}},
           {"id": "c2", "name": "g", "arguments": ""}, {"function": {"name": "h"}}]},
           {"role": "tool", "tool_call_id": "c1", "name": "f", "content": {"ok": true, "n": [1, 2.0]}},
           {"role": "tool", "tool_call_id": "c2", "content": "plain"}, {"role": "tool", "content": [1, "é"]}, {"role": "tool", "content": [{"type": "rain", "text": "a"}]},
           {"role": "ipython", "content": 5}]})",
       R"([{"role": "assistant", "tool_calls": [)"
       R"({"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": null}}}, )"
       R"({"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}, )"
       R"({"function": {"name": "h", "arguments": {}}}]}, )"
       R"({"role": "tool", "tool_call_id": "c1", "name": "f", "content": "{\"ok\": true, \"n\": [1, 2.0]}"}, )"
       R"({"role": "tool", "tool_call_id": "c2", "content": "plain"}, {"role": "tool", "content": "[1, \"é\"]"}, )"
       R"({"role": "tool", "content": "[{\"type\": \"rain\", \"text\": \"a\"}]"}, )"
       R"({"role": "ipython", "content": "5"}])"},
      // text that looks like JSON is text
      {R"({"messages": [{"role": "function", "name": "f", "content": "{\"a\":1}"}]})",
       R"([{"role": "function", "name": "f", "content": "{\"a\":1}"}])"},
  });
  const std::string at = "messages[0].tool_calls[0]";
  const auto call = [](const std::string& function) {
    return R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [)" + function + "]}]}";
  };
  for (const auto& [function, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"function": {"name": "f", "arguments": "x=1"}})",
            ".function.arguments: expected JSON text, found an error at byte 1 of 'x=1'"},
           {R"({"function": {"name": "f", "arguments": "{\"x\": 1"}})",
            ".function.arguments: expected JSON text, found an error at byte 8 of '{\"x\": 1'"},
           {R"({"function": {"name": "f", "arguments": "\"{}\""}})",
            ".function.arguments: expected JSON text of an object, found that of text"},
           {R"({"function": {"name": "f", "arguments": [1]}})",
            ".function.arguments: expected an object, or JSON text of one, found a list"},
           {R"({"function": {"name": "f", "arguments": "{\"x\": 18446744073709551616}"}})",
            ".function.arguments: whole number too large: 18446744073709551616"},
           {R"({"function": {"name": "f", "arguments": "{\"x\": 18446744073709551615}"}})",
            ".function.arguments: whole number too large: 18446744073709551615"},
           {R"({"function": {"name": 5}})", ".function.name: expected text, found number"},
           {R"({"function": {"arguments": {}}})", ".function: expected a name, found arguments"},
           {R"({"function": "f"})", ".function: expected an object with name and arguments, found text"},
           {R"({"id": "x"})",
            ": expected a call such as {\"type\": \"function\", \"function\": {\"name\": ..., \"arguments\": {...}}}, "
            "found id"},
           {"5",
            ": expected a call such as {\"type\": \"function\", \"function\": {\"name\": ..., \"arguments\": {...}}}, "
            "found "
            "number"},
       }) {
    CAPTURE(function);
    CHECK(chat_error(call(function)) == at + message);
  }
  check_errors({
      {R"({"messages": [{"role": "assistant", "tool_calls": 5}]})",
       "messages[0].tool_calls: expected a list of calls, found number"},
      {R"({"conversations": [{"from": "function_call", "value": "fn"}]})",
       "conversations[0].value: expected JSON text, found an error at byte 2 of 'fn'"},
  });
  // nesting is bounded where it is read
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  CHECK(chat_error(call(R"({"function": {"name": "f", "arguments": ")" + deep + "\"}}")) ==
        at + ".function.arguments: JSON text nested deeper than 64 levels");
}

TEST_CASE("conversation: tools as a list, as JSON text, bare, and of the old kind") {
  const std::string wrapped =
      R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}])";
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  for (
      const char* tools : {
          R"("tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}])",
          R"("tools": "[{\"name\": \"f\", \"description\": \"d\", \"parameters\": {\"type\": \"object\"}}]")",
          R"("tools": [{"name": "f", "description": "d", "parameters": "{\"type\": \"object\"}"}])",
          R"("tools": ["{\"name\": \"f\", \"description\": \"d\", \"parameters\": {\"type\": \"object\"}}"])",
          R"("tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": "{\"type\": \"object\"}"}}])",
          R"("functions": [{"name": "f", "description": "d", "parameters": {"type": "object"}}])",
          R"("tools": null, "functions": [{"name": "f", "description": "d", "parameters": {"type": "object"}}])",
      }) {
    CAPTURE(std::string(tools));
    const std::string row = std::string("{") + messages + ", " + tools + "}";
    CHECK(chat_error(row) == "");
    CHECK(json_text(read_chat(ordered_json::parse(row), {}).tools) == wrapped);
  }
  for (const char* none : {R"("tools": [])", R"("tools": "[]")", R"("tools": "")", R"("tools": "null")", R"("x": 1)"}) {
    CAPTURE(std::string(none));
    CHECK(json_text(read_chat(ordered_json::parse(std::string("{") + messages + ", " + none + "}"), {}).tools) ==
          "null");
  }
  // what a template may know stays
  CHECK(json_text(read_chat(ordered_json::parse("{" + messages + R"(, "t": [{"type": "browser", "name": "b"}]})"),
                            {.path = {}, .field_tools = "t"})
                      .tools) == R"([{"type": "browser", "name": "b"}])");
  check_errors({
      {R"({"messages": [{"role": "user", "content": "Hi"}], "tools": {"name": "f"}})",
       "tools: expected a list of functions, or JSON text of one, found an object"},
      {R"({"messages": [{"role": "user", "content": "Hi"}], "tools": "f, g"})",
       "tools: expected JSON text, found an error at byte 2 of 'f, g'"},
      {R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "f"}, 5]})",
       "tools[1]: expected the schema of a function, found number"},
      {R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "f", "parameters": "{"}]})",
       "tools[0].parameters: expected JSON text, found an error at byte 2 of '{'"},
  });
}

TEST_CASE("conversation: ShareGPT") {
  check({
      {R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]})", kHi},
      {R"({"conversations": [{"from": "user", "value": "Hi"}, {"from": "model", "value": "Yo"}], "system": ""})", kHi},
      {R"({"messages": [{"from": "human", "content": "Hi"}, {"role": "assistant", "value": "Yo"}]})", kHi},
      {R"({"system": "Be brief.", "conversations": [{"from": "human", "value": "Hi", "id": 1},
           {"from": "observation", "value": "{\"a\":1}"}, {"from": "function_response", "value": {"b": 2}},
           {"from": "chatgpt", "value": "Yo"}]})",
       R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi", "id": 1}, )"
       R"({"role": "tool", "content": "{\"a\":1}"}, {"role": "tool", "content": "{\"b\": 2}"}, )"
       R"({"role": "assistant", "content": "Yo"}])"},
      // the same system text twice is one
      {R"({"system": "S", "conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "Hi"}]})",
       R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])"},
  });
  const std::string known =
      ", known are human, user, prompter, gpt, assistant, chatgpt, bing, bard, model, bot, system, developer, tool, "
      "observation, function_response, tool_response, function, ipython, function_call, tool_call";
  check_errors({
      {R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "narrator", "value": "x"}]})",
       "conversations[1].from: unknown role 'narrator'" + known},
      {R"({"conversations": [{"from": "Human", "value": "Hi"}]})",
       "conversations[0].from: unknown role 'Human'" + known},
      {R"({"system": "S", "conversations": [{"from": "system", "value": "T"}, {"from": "human", "value": "Hi"}]})",
       "system: a second system text: the first message is one already"},
      {R"({"system": 5, "conversations": [{"from": "human", "value": "Hi"}]})", "system: expected text, found number"},
  });
  CHECK(chat_hint(R"({"conversations": [{"from": "narrator", "value": "x"}]})") ==
        "say who that is, under the dataset: roles: {user: [narrator]} (or assistant, system, tool)");
  DatasetSpec spec;
  spec.roles = {{"narrator", "user"}, {"gpt", "model"}, {"caller", "function_call"}};
  check(
      {{R"({"conversations": [{"from": "narrator", "value": "x"}, {"from": "gpt", "value": "y"},
              {"from": "caller", "value": {"name": "f"}}]})",
        R"([{"role": "user", "content": "x"}, {"role": "model", "content": "y"}, {"role": "assistant", "content": null, )"
        R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}])"},
       {R"({"messages": [{"role": "narrator", "content": "x"}]})", R"([{"role": "user", "content": "x"}])"}},
      spec);
}

TEST_CASE("conversation: fields that the spec names") {
  DatasetSpec spec;
  spec.field_messages = "talk", spec.field_role = "who", spec.field_content = "said", spec.field_system = "sys";
  check({{R"({"talk": [{"who": "human", "said": "Hi", "role": "x", "content": "y"}, {"who": "assistant", "said": "Yo"}],
              "messages": 5, "system": 5})",
          kHi},
         {R"({"talk": [{"who": "human", "said": "Hi"}], "sys": "S"})",
          R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])"}},
        spec);
  check_errors(
      {
          {R"({"messages": [{"role": "user", "content": "x"}]})",
           "expected talk, a list of messages; the row has messages"},
          {R"({"talk": "once"})", "talk: expected JSON text, found an error at byte 1 of 'once'"},
          {R"({"talk": [{"role": "user", "content": "x"}]})",
           "talk[0]: expected who (field_role), found role, content"},
          {R"({"talk": [{"who": null, "said": "x"}]})", "talk[0].who: expected text, found null"},
          {R"({"talk": [{"who": "user", "text": "x"}]})", "talk[0]: expected said, found who, text"},
      },
      spec);
}

TEST_CASE("conversation: train and weight of a message") {
  const auto turns = [](const char* row, const DatasetSpec& spec = {}) {
    const Conversation c = read_chat(ordered_json::parse(row), spec);
    for (const auto& m : c.messages.items()) CHECK(m.entries().size() == 2);  // templates do not see these keys
    std::string out;
    for (const Turn& t : c.turns) {
      out += out.empty() ? "" : " ";
      out += t.train ? (*t.train ? "T" : "F") : "-";
      if (t.weight) out += str(*t.weight);
    }
    return out;
  };
  CHECK(turns(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": false},
    {"role": "assistant", "content": "c", "train": true}, {"role": "assistant", "content": "c", "train": null}]})") ==
        "- F T -");
  CHECK(turns(R"({"messages": [{"role": "user", "content": "a", "weight": 0}, {"role": "assistant", "content": "b",
    "weight": 1}, {"role": "assistant", "content": "c", "weight": 0.25, "training": true}]})") == "-0 -1 T0.25");
  CHECK(turns(R"({"messages": [{"role": "user", "content": "a", "loss_weight": 0.0}, {"role": "assistant",
    "content": "b", "loss": false}]})") == "-0 F");
  DatasetSpec spec;
  spec.field_train = "learn", spec.field_weight = "w";
  CHECK(turns(R"({"messages": [{"role": "user", "content": "a", "learn": true, "w": 2}]})", spec) == "T2");
  // then the usual names are keys like others
  CHECK(
      json_text(read_chat(ordered_json::parse(R"({"messages": [{"role": "user", "content": "a", "train": 5}]})"), spec)
                    .messages) == R"([{"role": "user", "content": "a", "train": 5}])");
  check_errors({
      {R"({"messages": [{"role": "user", "content": "a", "train": 1}]})",
       "messages[0].train: expected true or false, found number"},
      {R"({"messages": [{"role": "user", "content": "a", "training": "yes"}]})",
       "messages[0].training: expected true or false, found text"},
      {R"({"messages": [{"role": "user", "content": "a", "weight": true}]})",
       "messages[0].weight: expected a number of 0 or more, found true or false"},
      {R"({"messages": [{"role": "user", "content": "a", "weight": -1}]})",
       "messages[0].weight: expected a number of 0 or more, found -1"},
      {R"({"messages": [{"role": "user", "content": "a", "loss_weight": 1e300}]})",
       "messages[0].loss_weight: expected a number of 0 or more, found 1e+300"},
      {R"({"messages": [{"role": "user", "content": "a", "train_detail": [{"begin_offset": 0}]}]})",
       "messages[0].train_detail: parts of a message cannot be trained apart from the rest"},
  });
}

TEST_CASE("conversation: what is wrong, and where") {
  check_errors({
      {R"({"messages": []})", "messages: expected messages, found an empty list"},
      {R"({"messages": {}})", "messages: expected a list of messages, found an object"},
      {R"({"messages": "hello"})", "messages: expected a list of messages, found text"},
      {R"({"messages": "[1"})", "messages: expected JSON text, found an error at byte 3 of '[1'"},
      {R"({"text": "x", "id": 1})", "expected messages, a list of messages; the row has text, id"},
      {R"({})", "expected messages, a list of messages; the row has nothing"},
      {R"({"messages": ["Hi"]})",
       "messages[0]: expected an object such as {\"role\": ..., \"content\": ...}, found text"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": 5}]})",
       "messages[1].content: expected text, found number"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]})",
       "messages[1].content: expected text, found null"},
      {R"({"messages": [{"role": "assistant", "content": null, "tool_calls": []}]})",
       "messages[0].content: expected text, found null"},
      {R"({"messages": [{"role": "user", "content": {"a": 1}}]})",
       "messages[0].content: expected text, found an object"},
      {R"({"messages": [{"role": "user", "content": true}]})",
       "messages[0].content: expected text, found true or false"},
      {R"({"messages": [{"role": "user", "text": "a"}]})", "messages[0]: expected content, found role, text"},
      {R"({"messages": [{"speaker": "user", "content": "a"}]})",
       "messages[0]: expected role and content (or from and value), found speaker, content"},
      {R"({"messages": [{"role": 5, "content": "a"}]})", "messages[0].role: expected text, found number"},
      {R"({"messages": [{"role": "", "content": "a"}]})",
       "messages[0].role: expected the name of a role, found empty text"},
      {R"({"messages": [{"role": "user", "content": "a", "n": 18446744073709551615}]})",
       "messages[0]: whole number too large: 18446744073709551615"},
      {R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 5})",
       "chat_template_kwargs: expected an object, found number"},
      {R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"messages": []}})",
       "chat_template_kwargs.messages: this variable is set by the rendering itself"},
  });
  CHECK(chat_hint(R"({"messages": [{"role": "user", "text": "a"}]})") ==
        "name the key of a message's text: field_content");
}

TEST_CASE("conversation: variables of the row") {
  const Conversation c = read_chat(
      ordered_json::parse(
          R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"enable_thinking": false, "d": null}})"),
      {});
  REQUIRE(c.variables.size() == 2);
  CHECK(c.variables[0].first.text() == "enable_thinking");
  CHECK(json_text(c.variables[0].second) == "false");
  CHECK(c.variables[1].second.is(JinjaValue::Kind::none));
}

TEST_CASE("conversation: prompt and completion as messages, of which the completion is trained") {
  const Conversation c = read_chat(ordered_json::parse(R"({
      "prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
      "completion": [{"role": "assistant", "content": "d"}], "tools": [{"name": "f"}]})"),
                                   {});
  REQUIRE(c.turns.size() == 4);
  for (size_t i = 0; i < 3; ++i) CHECK(c.turns[i].train == std::optional<bool>(false));
  CHECK(c.turns[3].train == std::nullopt);
  CHECK(json_text(c.messages.items()[3]) == R"({"role": "assistant", "content": "d"})");
  CHECK(!c.tools.is(JinjaValue::Kind::none));
  check_errors({{R"({"prompt": [], "completion": []})", "prompt: expected messages, found an empty list"},
                {R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant"}]})",
                 "completion[0]: expected content, found role"}});
}
