// SPDX-License-Identifier: Apache-2.0
#include "chat_template_input.h"

#include <nlohmann/json.hpp>

#include "../../kernels/error.h"
#include "jinja/ops.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

constexpr const char* kPart[] = {"the-first-part", "the-second-part"};
constexpr const char* kKey = "argument_name";

std::string arguments_text(const JinjaValue& arguments) {
  JinjaWork work;  // what a row holds is bounded by the row
  work.max_steps = work.steps_left = uint64_t{1} << 62;
  work.max_text_bytes = size_t{1} << 40;
  return jinja_to_json(arguments, {}, work);
}

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
    call = with(call, "function", with(*function, "arguments", arguments_text(*arguments)));
  }
  return JinjaValue::list(std::move(out));
}

JinjaValue adapted(const JinjaValue& messages, const TemplateWants& wants) {
  if (!messages.is(Kind::sequence) || (wants.parts && !wants.arguments_as_text)) return messages;
  JinjaValue::List out;  // empty while nothing had to change
  const auto& given = messages.items();
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is(Kind::dict)) continue;
    JinjaValue now = given[i];
    if (const auto* content = wants.parts ? nullptr : now.find("content");
        content != nullptr && content->is(Kind::sequence)) {
      now = with(now, "content", joined(*content, i));
    }
    if (const auto* calls = wants.arguments_as_text ? now.find("tool_calls") : nullptr;
        calls != nullptr && calls->is(Kind::sequence)) {
      now = with(now, "tool_calls", calls_as_text(*calls));
    }
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
    return parsed.render(template_context(input, special_tokens, {.parts = true, .arguments_as_text = false}), options)
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
JinjaValue call_messages(JinjaValue arguments, JinjaValue content) {
  const auto function = JinjaValue::dict({{"name", "some_tool"}, {"arguments", std::move(arguments)}});
  const auto call = JinjaValue::dict({{"id", "call00001"}, {"type", "function"}, {"function", function}});
  return JinjaValue::list({
      JinjaValue::dict({{"role", "user"}, {"content", "Do it."}}),
      JinjaValue::dict(
          {{"role", "assistant"}, {"content", std::move(content)}, {"tool_calls", JinjaValue::list({call})}}),
      JinjaValue::dict({{"role", "tool"}, {"name", "some_tool"}, {"tool_call_id", "call00001"}, {"content", "done"}}),
      JinjaValue::dict({{"role", "assistant"}, {"content", "It is done."}}),
  });
}

bool wants_arguments_as_text(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens) {
  const auto object = JinjaValue::dict({{kKey, "value"}});
  const auto schema = JinjaValue::from_json(nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "some_tool", "description": "A tool.", "parameters":
          {"type": "object", "properties": {}, "required": []}}}])"));
  const std::string quoted = str('"', kKey, '"'), python = str('\'', kKey, '\'');
  for (const bool null_content : {true, false}) {
    const JinjaValue content = null_content ? JinjaValue() : JinjaValue("");
    const std::string as_object = tried(parsed, special_tokens, call_messages(object, content), schema);
    const std::string as_text = tried(parsed, special_tokens, call_messages(arguments_text(object), content), schema);
    const auto said = [&](const std::string& text, const std::string& what) { return text.find(what) != text.npos; };
    if (said(as_object, quoted) || (said(as_object, kKey) && !said(as_object, python))) return false;
    if (said(as_text, quoted)) return true;
  }
  return false;  // it knows no calls
}

}  // namespace

TemplateWants try_out(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens) {
  return {.parts = takes_parts(parsed, special_tokens),
          .arguments_as_text = wants_arguments_as_text(parsed, special_tokens)};
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
