// SPDX-License-Identifier: Apache-2.0
// The tests behind "is".
#include <algorithm>

#include "builtins.h"
#include "ops.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;
using Value = const JinjaValue&;

template <JinjaComparison op>
bool compared(Value v, Value other, JinjaWork& work) {
  return jinja_compare(op, v, other, work);
}

// v % divisor == rest
bool remains(Value v, Value divisor, int64_t rest, JinjaWork& work) {
  return jinja_equal(jinja_arithmetic(JinjaOperator::modulo, v, divisor, work), JinjaValue(rest), work);
}

const JinjaTest kTests[] = {
    {"defined", [](Value v, Value, JinjaWork&) { return !v.is(Kind::undefined); }},
    {"undefined", [](Value v, Value, JinjaWork&) { return v.is(Kind::undefined); }},
    {"none", [](Value v, Value, JinjaWork&) { return v.is(Kind::none); }},
    {"boolean", [](Value v, Value, JinjaWork&) { return v.is(Kind::boolean); }},
    {"true", [](Value v, Value, JinjaWork&) { return v.is(Kind::boolean) && v.boolean(); }},
    {"false", [](Value v, Value, JinjaWork&) { return v.is(Kind::boolean) && !v.boolean(); }},
    {"string", [](Value v, Value, JinjaWork&) { return v.is(Kind::string); }},
    {"integer", [](Value v, Value, JinjaWork&) { return v.is(Kind::integer); }},
    {"float", [](Value v, Value, JinjaWork&) { return v.is(Kind::real); }},
    {"number",
     [](Value v, Value, JinjaWork&) { return v.is(Kind::integer) || v.is(Kind::real) || v.is(Kind::boolean); }},
    {"mapping", [](Value v, Value, JinjaWork&) { return v.is(Kind::dict); }},
    {"iterable", [](Value v, Value, JinjaWork&) { return jinja_iterable(v) || v.is(Kind::loop); }},
    // What has a length and items: a dict and undefined do, a view of a dict has not.
    {"sequence",
     [](Value v, Value, JinjaWork&) {
       return v.is(Kind::undefined) || v.is(Kind::string) || v.is(Kind::dict) ||
              (v.is(Kind::sequence) && as_sequence(v).kind <= SequenceKind::range);
     }},
    {"callable", [](Value v, Value, JinjaWork&) { return v.is(Kind::callable) || v.is(Kind::undefined); }},
    {"odd", [](Value v, Value, JinjaWork& work) { return remains(v, JinjaValue(2), 1, work); }},
    {"even", [](Value v, Value, JinjaWork& work) { return remains(v, JinjaValue(2), 0, work); }},
    {"divisibleby", [](Value v, Value n, JinjaWork& work) { return remains(v, n, 0, work); }, 1},
    {"in", [](Value v, Value container, JinjaWork& work) { return jinja_contains(container, v, work); }, 1},
    {"==", compared<JinjaComparison::equal>, 1},
    {"eq", compared<JinjaComparison::equal>, 1},
    {"equalto", compared<JinjaComparison::equal>, 1},
    {"!=", compared<JinjaComparison::not_equal>, 1},
    {"ne", compared<JinjaComparison::not_equal>, 1},
    {"<", compared<JinjaComparison::less>, 1},
    {"lt", compared<JinjaComparison::less>, 1},
    {"lessthan", compared<JinjaComparison::less>, 1},
    {"<=", compared<JinjaComparison::less_equal>, 1},
    {"le", compared<JinjaComparison::less_equal>, 1},
    {">", compared<JinjaComparison::greater>, 1},
    {"gt", compared<JinjaComparison::greater>, 1},
    {"greaterthan", compared<JinjaComparison::greater>, 1},
    {">=", compared<JinjaComparison::greater_equal>, 1},
    {"ge", compared<JinjaComparison::greater_equal>, 1},
};

}  // namespace

const JinjaTest* jinja_find_test(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& t) { return t.name == name; });
  return it == std::end(kTests) ? nullptr : it;
}

bool jinja_call_test(const JinjaTest& test, const JinjaValue& subject, const JinjaValue::List& arguments,
                     JinjaWork& work) {
  if (static_cast<int>(arguments.size()) != test.arguments) {
    jinja_data_fault(str("test '", test.name, "' takes ", test.arguments, " arguments, found ", arguments.size()));
  }
  return test.call(subject, arguments.empty() ? JinjaValue() : arguments[0], work);
}

}  // namespace bantam
