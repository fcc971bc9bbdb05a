// SPDX-License-Identifier: Apache-2.0
#include "conversation_tools.h"

#include "conversation_json.h"

namespace bantam {
namespace {

constexpr const char* kCallForm =
    "a call such as {\"type\": \"function\", \"function\": {\"name\": ..., \"arguments\": {...}}}";

// What datasets hold as text or as the thing itself.
JinjaValue unfolded(const JinjaValue& v, const RowPath& path) {
  return is_text(v) ? parse_row_json(v.text(), path) : v;
}

// An object. Nothing, and empty text, is a call without arguments.
JinjaValue read_arguments(const JinjaValue& v, const RowPath& path) {
  if (is_object(v)) return v;
  if (is_null(v) || (is_text(v) && v.text().find_first_not_of(" \t\r\n") == std::string::npos)) {
    return JinjaValue::dict({});
  }
  if (!is_text(v)) row_fault_kind(path, "an object, or JSON text of one", v);
  JinjaValue parsed = parse_row_json(v.text(), path);
  if (is_object(parsed)) return parsed;
  row_fault(path, str("expected JSON text of an object, found that of ", kind_of(parsed)),
            is_text(parsed) ? "the arguments were encoded as JSON twice" : "");
}

JinjaValue read_function(const JinjaValue& function, const RowPath& path) {
  if (!is_object(function)) row_fault_kind(path, "an object with name and arguments", function);
  const JinjaValue* name = find_value(function, "name");
  if (name == nullptr) row_fault(path, str("expected a name, found ", keys_text(function)));
  if (!is_text(*name)) row_fault_kind(RowPath(path, "name"), "text", *name);
  // Llama's own calls say parameters
  const std::string_view arguments = function.find("arguments") != nullptr ? "arguments" : "parameters";
  JinjaValue::Entries out;
  out.reserve(function.entries().size() + 1);
  bool found = false;
  for (const auto& [key, value] : function.entries()) {
    if (key.text() == arguments) {
      out.emplace_back("arguments", read_arguments(value, RowPath(path, arguments)));
      found = true;
    } else if (!is_null(value)) {
      out.emplace_back(key, value);
    }
  }
  if (!found) out.emplace_back("arguments", JinjaValue::dict({}));
  return JinjaValue::dict(std::move(out));
}

JinjaValue read_call(const JinjaValue& folded, const RowPath& path) {
  const JinjaValue call = unfolded(folded, path);
  if (!is_object(call)) row_fault_kind(path, kCallForm, call);
  JinjaValue::Entries out;
  if (find_value(call, "function") != nullptr) {
    out.reserve(call.entries().size());
    for (const auto& [key, value] : call.entries()) {
      if (key.text() == "function") {
        out.emplace_back(key, read_function(value, RowPath(path, "function")));
      } else if (!is_null(value)) {
        out.emplace_back(key, value);
      }
    }
    return JinjaValue::dict(std::move(out));
  }
  if (find_value(call, "name") == nullptr) row_fault(path, str("expected ", kCallForm, ", found ", keys_text(call)));
  JinjaValue::Entries inner;
  for (const auto& [key, value] : call.entries()) {
    if (key.text() == "id" && !is_null(value)) out.emplace_back(key, value);
    if (key.text() != "id" && key.text() != "type") inner.emplace_back(key, value);
  }
  out.emplace_back("type", "function");
  out.emplace_back("function", read_function(JinjaValue::dict(std::move(inner)), path));
  return JinjaValue::dict(std::move(out));
}

JinjaValue read_schema(const JinjaValue& schema, const RowPath& path) {
  if (!is_object(schema)) row_fault_kind(path, "an object with name and parameters", schema);
  const JinjaValue* parameters = find_value(schema, "parameters");
  if (parameters == nullptr || !is_text(*parameters)) return schema;
  JinjaValue::Entries out = schema.entries();
  for (auto& [key, value] : out) {
    if (key.text() == "parameters") value = parse_row_json(value.text(), RowPath(path, "parameters"));
  }
  return JinjaValue::dict(std::move(out));
}

JinjaValue read_tool(const JinjaValue& folded, const RowPath& path) {
  const JinjaValue tool = unfolded(folded, path);
  if (!is_object(tool)) row_fault_kind(path, "the schema of a function", tool);
  if (const JinjaValue* function = find_value(tool, "function")) {
    JinjaValue schema = read_schema(*function, RowPath(path, "function"));
    if (schema.object() == function->object()) return tool;
    JinjaValue::Entries out = tool.entries();
    for (auto& [key, value] : out)
      if (key.text() == "function") value = schema;
    return JinjaValue::dict(std::move(out));
  }
  if (find_value(tool, "name") == nullptr || find_value(tool, "type") != nullptr) return tool;  // the template knows it
  return JinjaValue::dict({{"type", "function"}, {"function", read_schema(tool, path)}});
}

}  // namespace

void append_tool_calls(const JinjaValue& folded, const RowPath& path, JinjaValue::List& out) {
  const JinjaValue calls = unfolded(folded, path);
  if (!is_list(calls)) return out.push_back(read_call(calls, path));
  size_t i = 0;
  for (const auto& call : calls.items()) out.push_back(read_call(call, RowPath(path, i++)));
}

JinjaValue read_tools(const JinjaValue& folded, const RowPath& path) {
  if (is_text(folded) && folded.text().find_first_not_of(" \t\r\n") == std::string::npos) return {};
  const JinjaValue tools = unfolded(folded, path);
  if (is_null(tools)) return {};
  if (!is_list(tools)) row_fault_kind(path, "a list of functions, or JSON text of one", tools);
  if (tools.items().empty()) return {};
  JinjaValue::List out;
  out.reserve(tools.items().size());
  size_t i = 0;
  for (const auto& tool : tools.items()) out.push_back(read_tool(tool, RowPath(path, i++)));
  return JinjaValue::list(std::move(out));
}

}  // namespace bantam
