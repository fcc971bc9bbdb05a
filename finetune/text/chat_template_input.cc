// SPDX-License-Identifier: Apache-2.0
#include "chat_template_input.h"

#include <nlohmann/json.hpp>

#include "../../kernels/error.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

constexpr const char* kPart[] = {"the-first-part", "the-second-part"};
constexpr const char* kKey = "argument_name";

// The dict with another value at a key.
JinjaValue with(const JinjaValue& dict, std::string_view key, JinjaValue value) {
  JinjaValue::Entries entries = dict.entries();
  for (auto& [k, v] : entries)
    if (k.is(Kind::string) && k.text() == key) v = std::move(value);
  return JinjaValue::dict(std::move(entries));
}

JinjaValue joined(const JinjaValue& parts, size_t message) {
  std::string out;
  size_t i = 0;
  for (const auto& part : parts.items()) {
    const JinjaValue* text = part.is(Kind::dict) ? part.find("text") : nullptr;
    if (text == nullptr || !text->is(Kind::string)) {
      throw Error(ErrorCode::data,
                  str("messages[", message, "].content[", i, "]: the template takes text only, found another part"));
    }
    if (i++ > 0) out += '\n';
    out += text->text();
  }
  return out;
}

JinjaValue calls_as_text(const JinjaValue& calls) {
  JinjaValue::List out = calls.items();
  for (auto& call : out) {
    const JinjaValue* function = call.is(Kind::dict) ? call.find("function") : nullptr;
    if (function == nullptr || !function->is(Kind::dict)) continue;
    const JinjaValue* arguments = function->find("arguments");
    if (arguments == nullptr || !arguments->is(Kind::dict)) continue;
    call = with(call, "function", with(*function, "arguments", json_dumps(*arguments)));
  }
  return JinjaValue::list(std::move(out));
}

JinjaValue with_empty_content(const JinjaValue& message) {
  if (message.find("content") != nullptr) return with(message, "content", "");
  JinjaValue::Entries entries = message.entries();
  entries.emplace_back("content", "");
  return JinjaValue::dict(std::move(entries));
}

// The message itself where nothing has to change.
JinjaValue adapted(const JinjaValue& message, const TemplateWants& wants, size_t index) {
  if (!message.is(Kind::dict)) return message;
  JinjaValue out = message;
  const JinjaValue* content = message.find("content");
  if (content == nullptr || content->is(Kind::none)) {
    if (wants.empty_content) out = with_empty_content(out);
  } else if (!wants.parts && content->is(Kind::sequence)) {
    out = with(out, "content", joined(*content, index));
  }
  if (const auto* calls = wants.arguments_as_text ? message.find("tool_calls") : nullptr;
      calls != nullptr && calls->is(Kind::sequence)) {
    out = with(out, "tool_calls", calls_as_text(*calls));
  }
  return out;
}

JinjaValue adapted(const JinjaValue& messages, const TemplateWants& wants) {
  if (!messages.is(Kind::sequence)) return messages;
  JinjaValue::List out;  // empty while nothing had to change
  const auto& given = messages.items();
  for (size_t i = 0; i < given.size(); ++i) {
    JinjaValue now = adapted(given[i], wants, i);
    if (now.object() == given[i].object()) continue;
    if (out.empty()) out = given;
    out[i] = std::move(now);
  }
  return out.empty() ? messages : JinjaValue::list(std::move(out));
}

// Empty where the template refuses.
std::string tried(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens, JinjaValue messages,
                  JinjaValue tools) {
  ChatInput input;
  input.messages = std::move(messages);
  input.tools = std::move(tools);
  JinjaOptions options;
  options.max_output_bytes = size_t{1} << 20;
  options.max_loop_iterations = 100'000;
  options.max_steps = 1'000'000;
  try {
    return parsed
        .render(template_context(input, special_tokens,
                                 {.parts = true, .arguments_as_text = false, .empty_content = false}),
                options)
        .text;
  } catch (const Error&) {
    return {};
  }
}

bool takes_parts(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens) {
  JinjaValue::List parts;
  for (const char* text : kPart) parts.push_back(JinjaValue::dict({{"type", "text"}, {"text", text}}));
  const std::string text = tried(
      parsed, special_tokens,
      JinjaValue::list({JinjaValue::dict({{"role", "user"}, {"content", JinjaValue::list(std::move(parts))}})}), {});
  const auto has = [&](const char* what) { return text.find(what) != std::string::npos; };
  // a list printed as such holds them too
  return has(kPart[0]) && has(kPart[1]) && !has("'text'") && !has("\"text\"");
}

// A call and its result, in the ids that Mistral's templates want.
JinjaValue call_messages(JinjaValue arguments, JinjaValue content, bool reasoning) {
  const auto function = JinjaValue::dict({{"name", "some_tool"}, {"arguments", std::move(arguments)}});
  const auto call = JinjaValue::dict({{"id", "call00001"}, {"type", "function"}, {"function", function}});
  JinjaValue::Entries turn = {
      {"role", "assistant"}, {"content", std::move(content)}, {"tool_calls", JinjaValue::list({call})}};
  if (reasoning) turn.emplace_back("reasoning_content", "So be it.");
  return JinjaValue::list({
      JinjaValue::dict({{"role", "user"}, {"content", "Do it."}}),
      JinjaValue::dict(std::move(turn)),
      JinjaValue::dict({{"role", "tool"}, {"name", "some_tool"}, {"tool_call_id", "call00001"}, {"content", "done"}}),
      JinjaValue::dict({{"role", "assistant"}, {"content", "It is done."}}),
  });
}

bool said(const std::string& text, std::string_view what) {
  return text.find(what) != text.npos;
}

// How a call comes out of a template.
class CallProbe {
 public:
  CallProbe(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens)
      : parsed_(parsed),
        special_tokens_(special_tokens),
        object_(JinjaValue::dict({{kKey, "value"}})),
        text_(json_dumps(object_)),
        tools_(JinjaValue::from_json(nlohmann::ordered_json::parse(
            R"([{"type": "function", "function": {"name": "some_tool", "description": "A tool.", "parameters":
                {"type": "object", "properties": {}, "required": []}}}])"))) {}

  enum class Outcome : uint8_t { lost, object, text };  ///< which form of the arguments came out
  struct Result {
    Outcome outcome = Outcome::lost;
    std::string text;
  };
  Result with(const JinjaValue& content, bool reasoning) const {
    const std::string quoted = str('"', kKey, '"'), python = str('\'', kKey, '\'');
    std::string as_object = render(object_, content, reasoning);
    if (said(as_object, quoted) || (said(as_object, kKey) && !said(as_object, python))) {
      return {Outcome::object, std::move(as_object)};
    }
    std::string as_text = render(text_, content, reasoning);
    if (said(as_text, quoted)) return {Outcome::text, std::move(as_text)};
    return {};
  }

 private:
  std::string render(const JinjaValue& arguments, const JinjaValue& content, bool reasoning) const {
    return tried(parsed_, special_tokens_, call_messages(arguments, content, reasoning), tools_);
  }

  const JinjaTemplate& parsed_;
  const JinjaValue::Entries& special_tokens_;
  JinjaValue object_, text_, tools_;
};

}  // namespace

TemplateWants try_out(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens) {
  TemplateWants out;
  out.parts = takes_parts(parsed, special_tokens);
  using Outcome = CallProbe::Outcome;
  const CallProbe probe(parsed, special_tokens);
  for (const bool reasoning : {false, true}) {
    const auto null = probe.with({}, reasoning), empty = probe.with("", reasoning);
    const auto prints_none = [](const CallProbe::Result& r) { return said(r.text, "None"); };
    const bool better = null.outcome == Outcome::lost || (prints_none(null) && !prints_none(empty));
    if (better && empty.outcome != Outcome::lost) out.empty_content = true;
    const Outcome outcome = out.empty_content ? empty.outcome : null.outcome;
    out.arguments_as_text = out.arguments_as_text || outcome == Outcome::text;
  }
  return out;
}

JinjaValue template_context(const ChatInput& input, const JinjaValue::Entries& special_tokens,
                            const TemplateWants& wants) {
  JinjaValue::Entries context;
  context.reserve(special_tokens.size() + 4 + input.variables.size());
  context = special_tokens;
  context.emplace_back("messages", adapted(input.messages, wants));
  context.emplace_back("tools", input.tools);
  context.emplace_back("documents", JinjaValue());
  context.emplace_back("add_generation_prompt", input.add_generation_prompt);
  context.insert(context.end(), input.variables.begin(), input.variables.end());
  return JinjaValue::dict(std::move(context));
}

}  // namespace bantam
