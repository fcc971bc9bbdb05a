// SPDX-License-Identifier: Apache-2.0
// A place in a row, spelled out only for a message, and faults that carry it.
#pragma once
#include <string>
#include <string_view>

#include "../../../kernels/error.h"
#include "../../text/jinja/value.h"
#include "../../text/utf8.h"

namespace bantam {

/// messages[1].tool_calls[0].function: a chain on the stack, from the inside out.
class RowPath {
 public:
  explicit RowPath(std::string_view field) : name_(field) {}
  RowPath(const RowPath& parent, std::string_view key) : parent_(&parent), name_(key) {}
  RowPath(const RowPath& parent, size_t index) : parent_(&parent), index_(index), is_index_(true) {}

  std::string text() const {
    if (is_index_) return str(parent_->text(), "[", index_, "]");
    return (parent_ == nullptr ? std::string() : parent_->text() + ".") + printable(name_, 60);
  }

 private:
  const RowPath* parent_ = nullptr;
  std::string_view name_;
  size_t index_ = 0;
  bool is_index_ = false;
};

[[noreturn]] inline void row_fault(const RowPath& path, const std::string& what, std::string hint = {}) {
  throw Error(ErrorCode::data, str(path.text(), ": ", what), std::move(hint));
}

/// What a value is, for people: "text", "number", "a list", ...
inline const char* kind_of(const JinjaValue& v) {
  switch (v.kind()) {
    case JinjaValue::Kind::none:
      return "null";
    case JinjaValue::Kind::boolean:
      return "true or false";
    case JinjaValue::Kind::integer:
    case JinjaValue::Kind::real:
      return "number";
    case JinjaValue::Kind::string:
      return "text";
    case JinjaValue::Kind::sequence:
      return "a list";
    default:
      return "an object";
  }
}

[[noreturn]] inline void row_fault_kind(const RowPath& path, const char* expected, const JinjaValue& found,
                                        std::string hint = {}) {
  row_fault(path, str("expected ", expected, ", found ", kind_of(found)), std::move(hint));
}

inline bool is_null(const JinjaValue& v) {
  return v.is(JinjaValue::Kind::none);
}
inline bool is_text(const JinjaValue& v) {
  return v.is(JinjaValue::Kind::string);
}
inline bool is_list(const JinjaValue& v) {
  return v.is(JinjaValue::Kind::sequence);
}
inline bool is_object(const JinjaValue& v) {
  return v.is(JinjaValue::Kind::dict);
}

/// The value of a key, unless it is absent or null.
inline const JinjaValue* find_value(const JinjaValue& object, std::string_view key) {
  const JinjaValue* v = object.find(key);
  return v == nullptr || is_null(*v) ? nullptr : v;
}

/// "role, content, name": keys of an object, the first few.
inline std::string keys_text(const JinjaValue& object) {
  std::string out;
  size_t n = 0;
  for (const auto& [key, value] : object.entries()) {
    if (n++ == 12) return out + ", ...";
    out += (out.empty() ? "" : ", ") + printable(key.text(), 40);
  }
  return out.empty() ? "nothing" : out;
}

}  // namespace bantam
