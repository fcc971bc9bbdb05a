// SPDX-License-Identifier: Apache-2.0
// Attributes, items and slices, and what is undefined where there are none.
#include <algorithm>

#include "methods.h"
#include "ops.h"
#include "unicode.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

// Jinja's object_type_repr.
std::string owner_text(const JinjaValue& v) {
  switch (v.kind()) {
    case Kind::none:
      return "None";
    case Kind::name_space:
      return "jinja2.utils.Namespace object";
    case Kind::loop:
      return "jinja2.runtime.LoopContext object";
    case Kind::callable:
      if (static_cast<const JinjaCallable&>(*v.object()).kind == JinjaCallable::Kind::macro) {
        return "jinja2.runtime.Macro object";
      }
      [[fallthrough]];
    default:
      return str(jinja_type(v), " object");
  }
}

JinjaValue unsafe(const JinjaValue& owner, std::string_view name) {
  return jinja_undefined_hint(str("access to attribute '", name, "' of '", jinja_type(owner), "' object is unsafe."));
}

// getattr(v, name); missing: AttributeError.
JinjaValue python_attribute(const JinjaValue& v, std::string_view name) {
  if (name.starts_with("__")) return unsafe(v, name);
  if (v.is(Kind::name_space)) {
    const auto* found = static_cast<const JinjaNamespace&>(*v.object()).find(name);
    return found == nullptr ? JinjaValue::missing() : *found;
  }
  if (v.is(Kind::loop)) return static_cast<JinjaLoop&>(*v.object()).attribute(name);
  switch (jinja_find_method(v, name)) {
    case MethodKind::supported:
      return jinja_method(v, name);
    case MethodKind::unsafe:
      return unsafe(v, name);
    case MethodKind::unsupported:
      jinja_unsupported(str("'", name, "' of ", jinja_type(v), " is not supported"));
    default:
      return JinjaValue::missing();
  }
}

// v[key]; missing: TypeError or LookupError.
JinjaValue python_item(const JinjaValue& v, const JinjaValue& key, JinjaWork& work) {
  if (v.is(Kind::dict)) {
    if (key.is(Kind::string)) {
      const auto* found = v.find(key.text());
      return found == nullptr ? JinjaValue::missing() : *found;
    }
    work.charge(v.entries().size());
    for (const auto& [k, value] : v.entries())
      if (jinja_same_key(k, key)) return value;
    return JinjaValue::missing();
  }
  if (!key.is(Kind::integer) && !key.is(Kind::boolean)) return JinjaValue::missing();
  int64_t at = key.is(Kind::boolean) ? int64_t{key.boolean()} : key.integer();
  if (v.is(Kind::string)) {
    work.charge(v.text().size() / 8);
    const int64_t n = text_length(v.text());
    if (at < 0) at += n;
    if (at < 0 || at >= n) return JinjaValue::missing();
    return jinja_markup(text_slice(v.text(), at, 1, 1), is_markup(v));
  }
  if (v.is(Kind::sequence) && as_sequence(v).kind <= SequenceKind::range) {
    const auto n = static_cast<int64_t>(v.items().size());
    if (at < 0) at += n;
    if (at >= 0 && at < n) return v.items()[static_cast<size_t>(at)];
  }
  return JinjaValue::missing();
}

JinjaValue make_undefined(std::string owner, std::string_view name, bool element, bool hint) {
  auto* object = new JinjaUndefined;
  object->owner = std::move(owner);
  object->name = name;
  object->element = element;
  object->hint = hint;
  return {Kind::undefined, object};
}

// An index of a slice; `otherwise` where none is given.
int64_t slice_index(const JinjaValue& v, int64_t otherwise) {
  if (v.is(Kind::none) || v.is(Kind::missing)) return otherwise;
  if (v.is(Kind::boolean)) return v.boolean();
  if (v.is(Kind::integer)) return v.integer();
  jinja_data_fault("slice indices must be integers or None or have an __index__ method");
}

}  // namespace

const char* jinja_type(const JinjaValue& v) {
  switch (v.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return is_markup(v) ? "Markup" : "str";
    case Kind::sequence: {
      static constexpr const char* kNames[] = {"list",      "tuple",       "range",    "dict_items",
                                               "dict_keys", "dict_values", "generator"};
      return kNames[static_cast<int>(as_sequence(v).kind)];
    }
    case Kind::dict:
      return "dict";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::callable: {
      const auto kind = static_cast<const JinjaCallable&>(*v.object()).kind;
      return kind == JinjaCallable::Kind::macro    ? "Macro"
             : kind == JinjaCallable::Kind::method ? "builtin_function_or_method"
                                                   : "function";
    }
  }
  return "object";
}

std::string JinjaUndefined::message() const {
  if (hint) return name;
  if (owner.empty()) return str(python_repr(name), " is undefined");
  if (element) return str(owner, " has no element ", name);
  return str(python_repr(owner), " has no attribute ", python_repr(name));
}

JinjaValue jinja_undefined_variable(std::string_view name) {
  return make_undefined("", name, false, false);
}
JinjaValue jinja_undefined_attribute(const JinjaValue& owner, std::string_view name) {
  return make_undefined(owner_text(owner), name, false, false);
}
JinjaValue jinja_undefined_element(const JinjaValue& owner, const JinjaValue& key) {
  if (key.is(Kind::string)) return jinja_undefined_attribute(owner, key.text());
  std::string name;
  JinjaWork work{.max_steps = 1000, .steps_left = 1000, .max_text_bytes = 4096};  // of a message
  try {
    jinja_append_repr(name, key, work);
  } catch (const JinjaFault&) {
    name = "...";
  }
  return make_undefined(owner_text(owner), name, true, false);
}
JinjaValue jinja_undefined_hint(std::string text) {
  return make_undefined("", text, false, true);
}

JinjaValue jinja_attribute(const JinjaValue& v, std::string_view name, JinjaWork& work) {
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  JinjaValue found = python_attribute(v, name);
  if (found.is(Kind::missing) && v.is(Kind::dict)) {
    work.charge(v.entries().size() / 16);
    if (const auto* value = v.find(name)) return *value;
  }
  return found.is(Kind::missing) ? jinja_undefined_attribute(v, name) : found;
}

JinjaValue jinja_item(const JinjaValue& v, const JinjaValue& key, JinjaWork& work) {
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  JinjaValue found = python_item(v, key, work);
  if (found.is(Kind::missing) && key.is(Kind::string)) found = python_attribute(v, key.text());
  return found.is(Kind::missing) ? jinja_undefined_element(v, key) : found;
}

JinjaValue jinja_slice(const JinjaValue& v, const JinjaValue& from, const JinjaValue& to, const JinjaValue& step,
                       JinjaWork& work) {
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  const bool sliceable = v.is(Kind::string) || (v.is(Kind::sequence) && as_sequence(v).kind <= SequenceKind::range);
  if (v.is(Kind::dict)) jinja_data_fault("unhashable type: 'slice'");
  if (!sliceable) jinja_data_fault(str("'", jinja_type(v), "' object is not subscriptable"));
  int64_t n = v.is(Kind::string) ? text_length(v.text()) : static_cast<int64_t>(v.items().size());
  // Python's slice.indices; a step beyond the length is as good as the length.
  int64_t stride = slice_index(step, 1);
  if (stride == 0) jinja_data_fault("slice step cannot be zero");
  stride = std::clamp(stride, -n - 1, n + 1);
  const auto place = [&](const JinjaValue& index, int64_t otherwise) {
    int64_t at = slice_index(index, otherwise);
    if (index.is(Kind::none) || index.is(Kind::missing)) return at;
    if (at < 0) return std::max(at < -n ? int64_t{-1} : at + n, stride < 0 ? int64_t{-1} : int64_t{0});
    return std::min(at, stride < 0 ? n - 1 : n);
  };
  const int64_t first = place(from, stride < 0 ? n - 1 : 0), last = place(to, stride < 0 ? -1 : n);
  const int64_t span = stride < 0 ? first - last : last - first, size = std::abs(stride);
  const int64_t count = span <= 0 ? 0 : (span - 1) / size + 1;
  if (v.is(Kind::string)) {
    work.charge(v.text().size() / 8);
    if (stride != 1) work.charge(static_cast<uint64_t>(n) / 4);
    return jinja_markup(text_slice(v.text(), first, stride, count), is_markup(v));
  }
  work.charge(static_cast<uint64_t>(count));
  JinjaValue::List items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) items.push_back(v.items()[static_cast<size_t>(first + k * stride)]);
  JinjaValue out = jinja_sequence(as_sequence(v).kind, std::move(items));
  if (is_sequence_of(v, SequenceKind::range)) {
    const auto& range = as_sequence(v);
    auto& sliced = as_sequence(out);
    sliced.step = range.step * stride;
    sliced.start = range.start + first * range.step;
    sliced.stop = range.start + last * range.step;
  }
  return out;
}

}  // namespace bantam
