// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "chat_roles.h"
#include "conversation_content.h"
#include "conversation_json.h"
#include "conversation_shape.h"
#include "conversation_tools.h"

namespace bantam {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kTrainAliases[] = {"training", "loss"};  // Axolotl, ms-swift
constexpr std::string_view kWeightAliases[] = {"loss_weight"};      // LLaMA-Factory
constexpr const char* kOtherKey = "where this key means something else, name the one that says it: field_train";
constexpr std::string_view kTrainDetail[] = {"train_detail", "training_detail"};

bool is_alias(std::string_view key, const std::string& field, const char* usual,
              std::span<const std::string_view> aliases) {
  if (key == field) return !field.empty();
  return field == usual && std::find(aliases.begin(), aliases.end(), key) != aliases.end();
}

// One message at a time; the conversation grows.
class ChatReader {
 public:
  explicit ChatReader(const DatasetSpec& spec) : spec_(spec) {}

  void message(const JinjaValue& m, const RowPath& path) {
    if (!is_object(m)) row_fault_kind(path, "an object such as {\"role\": ..., \"content\": ...}", m);
    const std::string_view role_key = find_role_key(m, path);
    const std::string_view content_key = find_content_key(m, role_key);
    const JinjaValue& name = *m.find(role_key);
    const RowPath role_path(path, role_key);
    if (!is_text(name)) row_fault_kind(role_path, "text", name);
    if (name.text().empty()) row_fault(role_path, "expected the name of a role, found empty text");
    std::string_view role = map_role(name.text(), role_key != "role", spec_, role_path);
    const bool call = role == kFunctionCallRole;  // the content is one
    if (call) role = "assistant";

    Turn turn{.role = std::string(role), .train = {}, .weight = {}};
    JinjaValue::Entries out;
    out.reserve(m.entries().size() + 1);
    MessageContent content;
    JinjaValue::List calls;
    bool has_content_key = false, reasons = false;
    for (const auto& [key, value] : m.entries()) {
      const std::string& k = key.text();
      if (k == role_key) {
        out.emplace_back("role", role);
      } else if (k == content_key) {
        const RowPath content_path(path, content_key);
        if (call) {
          append_tool_calls(value, content_path, calls);
        } else {
          content = read_content(value, is_tool_role(role), content_path);
        }
        out.emplace_back("content", content.value);
        has_content_key = true;
      } else if (k == "role" || k == "content" || is_null(value)) {
        // the spec names others, or there is nothing
      } else if (is_alias(k, spec_.field_train, "train", kTrainAliases)) {
        if (!value.is(JinjaValue::Kind::boolean)) row_fault_kind(RowPath(path, k), "true or false", value, kOtherKey);
        turn.train = value.boolean();
      } else if (is_alias(k, spec_.field_weight, "weight", kWeightAliases)) {
        turn.weight = read_weight(value, RowPath(path, k));
      } else if (k == kTrainDetail[0] || k == kTrainDetail[1]) {
        row_fault(RowPath(path, k), "parts of a message cannot be trained apart from the rest",
                  "train the whole message (\"train\": true or false), or cut it into several");
      } else if (k == "tool_calls") {
        append_tool_calls(checked_calls(value, RowPath(path, k)), RowPath(path, k), calls);
      } else if (k == "function_call") {
        append_tool_calls(value, RowPath(path, k), calls);
      } else {
        reasons = reasons || k == "reasoning_content" || k == "reasoning" || k == "thinking";
        out.emplace_back(key, value);
      }
    }
    if (content.has_reasoning) {
      if (reasons) row_fault(path, "reasoning stands in the parts of the content and in a key of its own");
      out.emplace_back("reasoning_content", std::move(content.reasoning));
    }
    calls.insert(calls.end(), content.tool_calls.begin(), content.tool_calls.end());
    if (is_null(content.value) && calls.empty() && !reasons && !content.has_reasoning) {
      no_content(m, path, content_key, has_content_key);
    }
    if (!calls.empty()) out.emplace_back("tool_calls", JinjaValue::list(std::move(calls)));
    add(JinjaValue::dict(std::move(out)), std::move(turn));
  }

  void system(const std::string& text, const std::string& field) {
    if (!messages_.empty() && (turns_[0].role == "system" || turns_[0].role == "developer")) {
      const JinjaValue* own = messages_[0].find("content");
      if (own != nullptr && is_text(*own) && own->text() == text) return;
      row_fault(RowPath(field), "a second system text: the first message is one already",
                "leave out one of the two, or name another field: field_system");
    }
    messages_.insert(messages_.begin(), JinjaValue::dict({{"role", "system"}, {"content", text}}));
    turns_.insert(turns_.begin(), Turn{.role = "system", .train = {}, .weight = {}});
  }

  void untrained() {
    for (Turn& turn : turns_) turn.train = false;
  }

  Conversation finish() {
    Conversation out;
    out.messages = JinjaValue::list(std::move(messages_));
    out.turns = std::move(turns_);
    return out;
  }

 private:
  std::string_view find_role_key(const JinjaValue& m, const RowPath& path) const {
    if (!spec_.field_role.empty()) {
      if (m.find(spec_.field_role) == nullptr) {
        row_fault(path, str("expected ", printable(spec_.field_role, 60), " (field_role), found ", keys_text(m)));
      }
      return spec_.field_role;
    }
    for (const char* key : {"role", "from"})
      if (find_value(m, key) != nullptr) return key;
    row_fault(path, str("expected role and content (or from and value), found ", keys_text(m)),
              "name the keys of a message: field_role, field_content");
  }

  std::string_view find_content_key(const JinjaValue& m, std::string_view role_key) const {
    if (!spec_.field_content.empty()) return spec_.field_content;
    const bool value = m.find("value") != nullptr;
    return value && (role_key == "from" || m.find("content") == nullptr) ? "value" : "content";
  }

  [[noreturn]] void no_content(const JinjaValue& m, const RowPath& path, std::string_view content_key,
                               bool there) const {
    const RowPath at(path, content_key);
    if (!there) {
      row_fault(path, str("expected ", printable(content_key, 60), ", found ", keys_text(m)),
                spec_.field_content.empty() ? "name the key of a message's text: field_content" : "");
    }
    const JinjaValue& value = *m.find(content_key);
    row_fault(at, str("expected text, found ", is_null(value) ? "null" : "an empty list"),
              "nothing to say is empty text, \"\"; null is for a turn with tool_calls");
  }

  static const JinjaValue& checked_calls(const JinjaValue& v, const RowPath& path) {
    if (!is_list(v) && !is_text(v)) row_fault_kind(path, "a list of calls", v);
    return v;
  }

  static float read_weight(const JinjaValue& v, const RowPath& path) {
    const bool whole = v.is(JinjaValue::Kind::integer);
    if (!whole && !v.is(JinjaValue::Kind::real)) row_fault_kind(path, "a number of 0 or more", v);
    const double weight = whole ? static_cast<double>(v.integer()) : v.real();
    if (!(weight >= 0) || !std::isfinite(static_cast<float>(weight))) {
      row_fault(path, str("expected a number of 0 or more, found ", weight));
    }
    return static_cast<float>(weight);
  }

  void add(JinjaValue message, Turn turn) {
    messages_.push_back(std::move(message));
    turns_.push_back(std::move(turn));
  }

  const DatasetSpec& spec_;
  JinjaValue::List messages_;
  std::vector<Turn> turns_;
};

void read_list(const ordered_json& list, const std::string& field, ChatReader& out) {
  const RowPath path(field);
  if (list.is_string()) {  // what CSV can hold
    const JinjaValue parsed = parse_row_json(list.get_ref<const std::string&>(), path);
    if (!is_list(parsed)) row_fault_kind(path, "a list of messages", parsed);
    size_t i = 0;
    for (const auto& message : parsed.items()) out.message(message, RowPath(path, i++));
    return;
  }
  if (!list.is_array()) row_fault_kind(path, "a list of messages", row_value(list, path));
  size_t i = 0;
  for (const auto& message : list) {
    const RowPath at(path, i++);
    out.message(row_value(message, at), at);
  }
}

const ordered_json* find_field(const ordered_json& row, const std::string& field) {
  if (field.empty()) return nullptr;
  const auto it = row.find(field);
  return it == row.end() || it->is_null() ? nullptr : &*it;
}

void read_variables(const ordered_json& row, Conversation& out) {
  const ordered_json* found = find_field(row, "chat_template_kwargs");
  if (found == nullptr) return;
  const RowPath path("chat_template_kwargs");
  JinjaValue variables = row_value(*found, path);
  if (is_text(variables)) variables = parse_row_json(variables.text(), path);
  if (!is_object(variables)) row_fault_kind(path, "an object", variables);
  for (const auto& [key, value] : variables.entries()) {
    const std::string& name = key.text();
    if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
      row_fault(RowPath(path, name), "this variable is set by the rendering itself");
    }
    out.variables.emplace_back(key, value);
  }
}

}  // namespace

Conversation read_chat(const ordered_json& row, const DatasetSpec& spec) {
  check_object(row);
  check_text_only(row);
  ChatReader reader(spec);
  if (const std::string field = messages_field(row, spec); !field.empty()) {
    read_list(row.at(field), field, reader);
  } else if (is_conversational_pair(row, spec)) {
    read_list(row.at(spec.field_prompt), spec.field_prompt, reader);
    reader.untrained();
    read_list(row.at(spec.field_completion), spec.field_completion, reader);
  } else {
    no_messages(row, spec);
  }
  if (const ordered_json* system = find_field(row, spec.field_system)) {
    if (!system->is_string()) row_fault_kind(RowPath(spec.field_system), "text", row_value(*system, RowPath("system")));
    const auto& text = system->get_ref<const std::string&>();
    if (!text.empty()) reader.system(text, spec.field_system);
  }
  Conversation out = reader.finish();
  if (out.turns.empty()) {
    const std::string field = messages_field(row, spec);
    row_fault(RowPath(field.empty() ? spec.field_prompt : field), "expected messages, found an empty list");
  }
  const ordered_json* tools = find_field(row, spec.field_tools);
  const std::string field = tools == nullptr && spec.field_tools == "tools" ? "functions" : spec.field_tools;
  if (tools == nullptr) tools = find_field(row, field);
  if (tools != nullptr) out.tools = read_tools(row_value(*tools, RowPath(field)), RowPath(field));
  read_variables(row, out);
  return out;
}

}  // namespace bantam
