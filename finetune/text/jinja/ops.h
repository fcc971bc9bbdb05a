// SPDX-License-Identifier: Apache-2.0
// Python's operators and conversions on JinjaValue, and Jinja's rules for attributes and items. What Python raises is a
// JinjaFault with Python's words.
#pragma once
#include <string>
#include <string_view>

#include "object.h"

namespace bantam {

enum class JinjaOperator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo };
enum class JinjaComparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

bool jinja_truth(const JinjaValue& v);
bool jinja_equal(const JinjaValue& a, const JinjaValue& b, JinjaWork& work);
/// Equal as keys of a dict; containers are no keys.
bool jinja_same_key(const JinjaValue& a, const JinjaValue& b);
bool jinja_compare(JinjaComparison op, const JinjaValue& a, const JinjaValue& b, JinjaWork& work);
bool jinja_contains(const JinjaValue& container, const JinjaValue& item, JinjaWork& work);
JinjaValue jinja_arithmetic(JinjaOperator op, const JinjaValue& a, const JinjaValue& b, JinjaWork& work);
JinjaValue jinja_negate(const JinjaValue& v, bool negative);

/// str(v): undefined is empty.
void jinja_append_str(std::string& out, const JinjaValue& v, JinjaWork& work);
std::string jinja_str(const JinjaValue& v, JinjaWork& work);
/// repr(v).
void jinja_append_repr(std::string& out, const JinjaValue& v, JinjaWork& work);
std::string python_float(double d);           ///< repr(float)
std::string python_repr(std::string_view s);  ///< repr(str)
/// json.dumps; the arguments are those of transformers' tojson.
struct JsonDump {
  bool ensure_ascii = false, sort_keys = false, pretty = false;
  std::string indent;  ///< of one level, when pretty
  std::string item_separator = ", ", key_separator = ": ";
};
std::string jinja_to_json(const JinjaValue& v, const JsonDump& options, JinjaWork& work);

/// iter(v): keys of a dict, code points of a text, nothing of undefined; an iterator is used up.
JinjaValue::List jinja_iterate(const JinjaValue& v, JinjaWork& work);
/// False where jinja_iterate would raise.
bool jinja_iterable(const JinjaValue& v);
/// len(v), TypeError where there is none.
int64_t jinja_length(const JinjaValue& v, JinjaWork& work);

/// v.name and v[key] as Jinja's environment has it: an attribute first, or an item first, undefined where neither is.
JinjaValue jinja_attribute(const JinjaValue& v, std::string_view name, JinjaWork& work);
JinjaValue jinja_item(const JinjaValue& v, const JinjaValue& key, JinjaWork& work);
/// v[a:b:c]; none and missing are left out.
JinjaValue jinja_slice(const JinjaValue& v, const JinjaValue& from, const JinjaValue& to, const JinjaValue& step,
                       JinjaWork& work);
/// UndefinedError.
[[noreturn]] void jinja_fail_undefined(const JinjaValue& v);

}  // namespace bantam
