// SPDX-License-Identifier: Apache-2.0
// Rows of instruction, input and output as a conversation.
#include <nlohmann/json.hpp>

#include "conversation.h"
#include "conversation_json.h"
#include "conversation_shape.h"

namespace bantam {
namespace {

using nlohmann::ordered_json;

const std::string& text_of(const ordered_json& v, const RowPath& path) {
  if (!v.is_string()) row_fault_kind(path, "text", row_value(v, path));
  return v.get_ref<const std::string&>();
}

// Null: absent, or null where that is the same.
const std::string* find_text(const ordered_json& row, const std::string& field) {
  if (field.empty()) return nullptr;
  const auto it = row.find(field);
  return it == row.end() || it->is_null() ? nullptr : &text_of(*it, RowPath(field));
}

const std::string& need_text(const ordered_json& row, const std::string& field, const char* setting) {
  const auto it = row.find(field);
  if (it == row.end()) {
    row_fault(RowPath(field), str("this field is missing; the row has ", fields_text(row)),
              str("another name is given by ", setting));
  }
  return text_of(*it, RowPath(field));
}

class Turns {
 public:
  void add(const char* role, const std::string& content) {
    add(role, JinjaValue::dict({{"role", role}, {"content", content}}));
  }
  void add(const char* role, JinjaValue message) {
    messages_.push_back(std::move(message));
    turns_.push_back(Turn{.role = role, .train = {}, .weight = {}});
  }
  Conversation finish() {
    Conversation out;
    out.messages = JinjaValue::list(std::move(messages_));
    out.turns = std::move(turns_);
    return out;
  }

 private:
  JinjaValue::List messages_;
  std::vector<Turn> turns_;
};

void add_history(const ordered_json& row, Turns& out) {
  const auto it = row.find("history");
  if (it == row.end() || it->is_null()) return;
  const RowPath path("history");
  if (!it->is_array()) row_fault_kind(path, "a list of [question, answer]", row_value(*it, path));
  size_t i = 0;
  for (const auto& pair : *it) {
    const RowPath at(path, i++);
    if (!pair.is_array() || pair.size() != 2) {
      row_fault(at, str("expected [question, answer], found ",
                        pair.is_array() ? str("a list of ", pair.size()) : kind_of(row_value(pair, at))));
    }
    out.add("user", text_of(pair[0], RowPath(at, size_t{0})));
    out.add("assistant", text_of(pair[1], RowPath(at, 1)));
  }
}

}  // namespace

Conversation read_alpaca(const ordered_json& row, const DatasetSpec& spec) {
  check_object(row);
  check_text_only(row);
  const std::string& instruction = need_text(row, spec.field_instruction, "field_instruction");
  const std::string& output = need_text(row, spec.field_output, "field_output");
  const std::string* input = find_text(row, spec.field_input);
  const std::string* system = find_text(row, spec.field_system);
  if (instruction.empty() && (input == nullptr || input->empty())) {
    row_fault(RowPath(spec.field_instruction), "expected text, found empty text and no input");
  }
  Turns out;
  if (system != nullptr && !system->empty()) out.add("system", *system);
  add_history(row, out);
  if (input == nullptr || input->empty()) {
    out.add("user", instruction);
  } else if (instruction.empty()) {
    out.add("user", *input);
  } else {
    // the two as well, for templates that keep them apart
    out.add("user", JinjaValue::dict({{"role", "user"},
                                      {"content", str(instruction, "\n", *input)},
                                      {"instruction", instruction},
                                      {"input", *input}}));
  }
  out.add("assistant", output);
  return out.finish();
}

}  // namespace bantam
