// SPDX-License-Identifier: Apache-2.0
// What stands behind a JinjaValue that is more than 8 bytes, and what evaluation may cost. Private to the evaluator.
#pragma once
#include <memory>
#include <unordered_map>

#include "../../../kernels/error.h"
#include "jinja.h"
#include "value.h"

namespace bantam {

/// An Error without a place yet: the evaluator puts "name:line:column: " before it.
struct JinjaFault : Error {
  using Error::Error;
};

[[noreturn]] inline void jinja_data_fault(const std::string& message) {
  throw JinjaFault(ErrorCode::data, message);
}
/// For what a template asks for and this evaluator does not have.
[[noreturn]] inline void jinja_unsupported(const std::string& message) {
  throw JinjaFault(ErrorCode::model, message);
}

/// What is left of a rendering's allowance. Work is counted, not timed, so that the same input always ends the same.
struct JinjaWork {
  uint64_t max_steps = 0, steps_left = 0;
  size_t max_text_bytes = 0;

  void charge(uint64_t steps) {
    if (steps > steps_left) jinja_data_fault(str("more than ", max_steps, " evaluation steps (max_steps)"));
    steps_left -= steps;
  }
  /// Before a text of that size is made or searched, or put behind `before` bytes that are there.
  void charge_text(size_t bytes, size_t before = 0) {
    if (before + bytes > max_text_bytes)
      jinja_data_fault(str("a text of more than ", max_text_bytes, " bytes (max_output_bytes)"));
    charge(bytes / 64);
  }
};

constexpr int kJinjaMostLevels = 128;  ///< of nested values: printing, comparing and freeing them recurse

struct JinjaString final : JinjaObject {
  std::string text;
  bool markup = false;                ///< made by `safe`: what is joined to it is escaped for HTML, as markupsafe does
  std::vector<JinjaSpan> generation;  ///< spans of {% generation %}, where the text is what a macro or a block made
};

enum class SequenceKind : uint8_t { list, tuple, range, items, keys, values, iterator };

struct JinjaSequence final : JinjaObject {
  SequenceKind kind = SequenceKind::list;
  uint16_t depth = 1;
  size_t read = 0;                        ///< of an iterator: items before it are used up
  int64_t start = 0, stop = 0, step = 1;  ///< of a range
  JinjaValue::List items;
};

struct JinjaDict final : JinjaObject {
  uint16_t depth = 1;
  JinjaValue::Entries entries;
  std::unordered_map<std::string_view, uint32_t> index;  ///< text keys, where there are many entries
};

/// The only value that changes.
struct JinjaNamespace final : JinjaObject {
  std::vector<std::pair<std::string, JinjaValue>> attributes;
  const JinjaValue* find(std::string_view name) const;
  void set(std::string_view name, JinjaValue value);
};

/// Why something is undefined, for the message of who then uses it.
struct JinjaUndefined final : JinjaObject {
  std::string owner;  ///< "list object"; empty: a variable, or a hint
  std::string name;
  bool element = false, hint = false, security = false;
  std::string message() const;
};

struct JinjaLoop : JinjaObject {
  virtual JinjaValue attribute(std::string_view name) = 0;
};

struct JinjaMacro;  // ast.h
struct JinjaScope;  // evaluator.h

struct JinjaCallable final : JinjaObject {
  enum class Kind : uint8_t { macro, method, global } kind = Kind::global;
  const JinjaMacro* macro = nullptr;
  JinjaScope* scope = nullptr;  ///< where the macro was defined
  JinjaValue receiver;
  std::string_view name;  ///< of a method or a global; static text
};

JinjaValue jinja_markup(std::string text, bool markup);
JinjaValue jinja_sequence(SequenceKind kind, JinjaValue::List items);
JinjaValue jinja_undefined_variable(std::string_view name);
JinjaValue jinja_undefined_attribute(const JinjaValue& owner, std::string_view name);
JinjaValue jinja_undefined_element(const JinjaValue& owner, const JinjaValue& key);
JinjaValue jinja_undefined_hint(std::string text);
JinjaValue jinja_method(const JinjaValue& receiver, std::string_view static_name);

inline const JinjaString& as_string(const JinjaValue& v) {
  return static_cast<const JinjaString&>(*v.object());
}
inline JinjaSequence& as_sequence(const JinjaValue& v) {
  return static_cast<JinjaSequence&>(*v.object());
}
inline const JinjaDict& as_dict(const JinjaValue& v) {
  return static_cast<const JinjaDict&>(*v.object());
}
inline bool is_markup(const JinjaValue& v) {
  return v.is(JinjaValue::Kind::string) && as_string(v).markup;
}
inline bool is_sequence_of(const JinjaValue& v, SequenceKind kind) {
  return v.is(JinjaValue::Kind::sequence) && as_sequence(v).kind == kind;
}
/// Python's name of the type: "NoneType", "str", "dict_items", ...
const char* jinja_type(const JinjaValue& v);

/// Arguments of a call.
struct JinjaArguments {
  JinjaValue::List positional;
  std::vector<std::pair<std::string_view, JinjaValue>> named;
};
/// One value per parameter, missing where none was given. TypeError for more and for other names.
JinjaValue::List jinja_bind(std::string_view function, JinjaArguments& arguments,
                            const std::vector<std::string_view>& parameters);

}  // namespace bantam
