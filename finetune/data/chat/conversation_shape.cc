// SPDX-License-Identifier: Apache-2.0
#include "conversation_shape.h"

#include <nlohmann/json.hpp>
#include <span>

#include "conversation.h"
#include "conversation_path.h"

namespace bantam {
namespace {

using nlohmann::ordered_json;

constexpr const char* kLists[] = {"messages", "conversations", "conversation", "dialog"};

const ordered_json* find(const ordered_json& row, const std::string& field) {
  if (field.empty()) return nullptr;
  const auto it = row.find(field);
  return it == row.end() || it->is_null() ? nullptr : &*it;
}

bool has_text(const ordered_json& row, const std::string& field) {
  const ordered_json* v = find(row, field);
  return v != nullptr && v->is_string();
}

bool has_list(const ordered_json& row, const std::string& field) {
  const ordered_json* v = find(row, field);
  if (v == nullptr) return false;
  if (v->is_array()) return true;
  if (!v->is_string()) return false;
  const auto& text = v->get_ref<const std::string&>();
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at != std::string::npos && text[at] == '[';
}

// What people call the two sides, most telling first.
constexpr const char* kPrompts[] = {"prompt", "question", "query", "problem", "instruction", "input", "source"};
constexpr const char* kCompletions[] = {"completion", "response",          "answer", "solution", "output",
                                        "target",     "canonical_solution"};

std::string first_text(const ordered_json& row, std::span<const char* const> names, const std::string& not_this) {
  for (const char* name : names)
    if (name != not_this && has_text(row, name)) return name;
  return {};
}

// What to write for two fields that look like the two sides of a pair.
std::string pair_hint(const ordered_json& row) {
  const std::string prompt = first_text(row, kPrompts, {});
  const std::string completion = prompt.empty() ? std::string() : first_text(row, kCompletions, prompt);
  if (completion.empty()) return {};
  if (prompt == "instruction") {
    std::string out = "write type: alpaca, field_output: " + completion;
    if (!has_text(row, "input") && has_text(row, "context")) out += ", field_input: context";
    return out;
  }
  std::string out = "write type: prompt_completion";
  if (prompt != "prompt") out += ", field_prompt: " + prompt;
  if (completion != "completion") out += ", field_completion: " + completion;
  return out;
}

[[noreturn]] void refuse(const ordered_json& row, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::data, str(what, "; the row has ", fields_text(row)), hint);
}

void refuse_other_kinds(const ordered_json& row, const DatasetSpec& spec) {
  if (find(row, "input_ids") != nullptr) {
    refuse(row, "tokenised rows (input_ids): they belong to one tokenizer, and are not read",
           "give the rows as they were before tokenising");
  }
  if (find(row, "chosen") != nullptr && find(row, "rejected") != nullptr) {
    const bool lists = has_list(row, "chosen");
    refuse(row, "preference data (chosen and rejected), which this training does not use",
           lists ? "to train on the chosen answers: type: chat, field_messages: chosen"
           : has_text(row, "prompt")
               ? "to train on the chosen answers: type: prompt_completion, field_completion: chosen"
               : "to train on the chosen texts: type: text, field_text: chosen");
  }
  const ordered_json* label = find(row, "label");
  if (label != nullptr && label->is_boolean() &&
      (!messages_field(row, spec).empty() || find(row, spec.field_completion) != nullptr)) {
    refuse(row,
           "preference data (label: true or false says whether the answer is wanted), which this training does not use",
           "take out the rows with false, or name the type (chat, prompt_completion) to train on all of them");
  }
}

}  // namespace

std::string messages_field(const ordered_json& row, const DatasetSpec& spec) {
  if (!spec.field_messages.empty())
    return find(row, spec.field_messages) != nullptr ? spec.field_messages : std::string();
  for (const char* name : kLists)
    if (has_list(row, name)) return name;
  return {};
}

bool is_conversational_pair(const ordered_json& row, const DatasetSpec& spec) {
  const ordered_json *prompt = find(row, spec.field_prompt), *completion = find(row, spec.field_completion);
  return prompt != nullptr && completion != nullptr && prompt->is_array() && completion->is_array();
}

void no_messages(const ordered_json& row, const DatasetSpec& spec) {
  const auto names = spec.field_messages.empty() ? std::vector<std::string>(std::begin(kLists), std::end(kLists))
                                                 : std::vector<std::string>{spec.field_messages};
  for (const auto& name : names) {
    const auto it = row.find(name);
    if (it != row.end()) {
      throw Error(ErrorCode::data, str(printable(name, 60), ": expected a list of messages, found ",
                                       kind_of(JinjaValue::from_json(*it))));
    }
  }
  refuse(row, str("expected ", printable(names[0], 60), ", a list of messages"),
         spec.field_messages.empty() ? "name the field: field_messages" : "");
}

void check_object(const ordered_json& row) {
  if (!row.is_object()) throw Error(ErrorCode::data, str("expected an object, found ", row.type_name()));
}

void check_text_only(const ordered_json& row) {
  for (const char* name : {"images", "audios", "videos"}) {
    const ordered_json* v = find(row, name);
    if (v != nullptr && v->is_array() && !v->empty()) {
      throw Error(ErrorCode::data,
                  str(name, ": the row comes with ", v->size(), " of them; only text can be trained on"),
                  "take such rows out, or remove the field");
    }
  }
}

std::string fields_text(const ordered_json& row) {
  std::string out;
  size_t n = 0;
  for (const auto& [key, value] : row.items()) {
    if (n++ == 12) return out + ", ...";
    out += (out.empty() ? "" : ", ") + printable(key, 40);
  }
  return out.empty() ? "nothing" : out;
}

DatasetType detect_type(const ordered_json& row, const DatasetSpec& spec) {
  check_object(row);
  refuse_other_kinds(row, spec);
  if (!messages_field(row, spec).empty() || is_conversational_pair(row, spec)) return DatasetType::chat;
  if (has_text(row, spec.field_prompt) && has_text(row, spec.field_completion)) return DatasetType::prompt_completion;
  if (has_text(row, spec.field_instruction) && has_text(row, spec.field_output)) return DatasetType::alpaca;
  if (has_text(row, spec.field_text)) return DatasetType::text;
  const std::string hint = pair_hint(row);
  refuse(row, "no known shape of a row",
         !hint.empty()
             ? hint
             : "known are: messages or conversations (chat); prompt and completion; instruction, input and output "
               "(alpaca); text. Other names: type and field_... of the dataset");
}

}  // namespace bantam
