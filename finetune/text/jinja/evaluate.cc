// SPDX-License-Identifier: Apache-2.0
// Expressions and calls.
#include <algorithm>

#include "evaluator.h"
#include "methods.h"

namespace bantam {

using Kind = JinjaValue::Kind;
using Node = JinjaExprKind;

const JinjaValue& JinjaEvaluator::operand(const JinjaExpr& e, JinjaValue& own) {
  if (e.kind == Node::constant || e.kind == Node::name) {
    work_.charge(1);
    return e.kind == Node::constant ? e.value : lookup(e.id);
  }
  own = evaluate(e);
  return own;
}

bool JinjaEvaluator::holds(const JinjaExpr& e) {
  JinjaValue own;
  return jinja_truth(operand(e, own));
}

JinjaValue JinjaEvaluator::evaluate(const JinjaExpr& e) {
  work_.charge(1);
  if (e.kind == Node::constant) return e.value;
  if (e.kind == Node::name) return lookup(e.id);
  if (e.kind == Node::captured) return std::exchange(captured_, JinjaValue());
  const Deeper deeper(*this);
  switch (e.kind) {
    case Node::attribute: {
      JinjaValue own;
      const JinjaValue& object = operand(*e.parts[0], own);
      at_ = e.at;
      return jinja_attribute(object, e.value.text(), work_);
    }
    case Node::item: {
      JinjaValue own, own_key;
      const JinjaValue &object = operand(*e.parts[0], own), &key = operand(*e.parts[1], own_key);
      at_ = e.at;
      return jinja_item(object, key, work_);
    }
    case Node::call:
      return call(e);
    case Node::filter:
      return filter(e);
    case Node::test:
      return test(e);
    case Node::logic_not:
      return !holds(*e.parts[0]);
    case Node::logic_and: {
      JinjaValue left = evaluate(*e.parts[0]);
      return jinja_truth(left) ? evaluate(*e.parts[1]) : left;
    }
    case Node::logic_or: {
      JinjaValue left = evaluate(*e.parts[0]);
      return jinja_truth(left) ? left : evaluate(*e.parts[1]);
    }
    case Node::arithmetic:
      return arithmetic(e);
    case Node::concat:
      return concat(e);
    case Node::compare:
      return compare(e);
    case Node::conditional:
      if (holds(*e.parts[1])) return evaluate(*e.parts[0]);
      if (e.parts[2]) return evaluate(*e.parts[2]);
      return jinja_undefined_hint("the inline if-expression evaluated to false and no else section was defined.");
    case Node::slice:
      return slice(e);
    case Node::positive:
    case Node::negative: {
      const JinjaValue value = evaluate(*e.parts[0]);
      at_ = e.at;
      return jinja_negate(value, e.kind == Node::negative);
    }
    default:
      return container(e);
  }
}

JinjaValue JinjaEvaluator::container(const JinjaExpr& e) {
  if (e.kind == Node::dict) {
    JinjaValue::Entries entries;
    for (size_t i = 0; i < e.parts.size(); i += 2) {
      JinjaValue key = evaluate(*e.parts[i]);
      at_ = e.parts[i]->at;
      if (key.is(Kind::dict) || (key.is(Kind::sequence) && !is_sequence_of(key, SequenceKind::tuple))) {
        jinja_data_fault(str("unhashable type: '", jinja_type(key), "'"));
      }
      entries.emplace_back(std::move(key), evaluate(*e.parts[i + 1]));
    }
    at_ = e.at;
    return JinjaValue::dict(std::move(entries));
  }
  JinjaValue::List items;
  items.reserve(e.parts.size());
  for (const auto& part : e.parts) items.push_back(evaluate(*part));
  at_ = e.at;
  return jinja_sequence(e.kind == Node::list ? SequenceKind::list : SequenceKind::tuple, std::move(items));
}

JinjaValue JinjaEvaluator::compare(const JinjaExpr& e) {
  JinjaValue own_left, own_right;
  const JinjaValue* left = &operand(*e.parts[0], own_left);
  for (size_t i = 0;; ++i) {
    const JinjaValue& right = operand(*e.parts[i + 1], own_right);
    at_ = e.at;
    if (!jinja_compare(e.comparisons[i], *left, right, work_)) return false;
    if (i + 1 == e.comparisons.size()) return true;
    own_left = right;
    left = &own_left;
  }
}

JinjaValue JinjaEvaluator::arithmetic(const JinjaExpr& e) {
  JinjaValue left = evaluate(*e.parts[0]);
  JinjaValue own;
  const JinjaValue& right = operand(*e.parts[1], own);
  at_ = e.at;
  if (e.op == JinjaOperator::add && left.is(Kind::string) && right.is(Kind::string) && left.object()->references == 1 &&
      !is_markup(left) && !is_markup(right)) {
    // Nobody else sees the left text: a + b + c grows one text instead of copying it each time.
    auto& mine = static_cast<JinjaString&>(*left.object());
    work_.charge_text(right.text().size(), mine.text.size());
    mine.text += right.text();
    mine.generation.clear();
    return left;
  }
  return jinja_arithmetic(e.op, left, right, work_);
}

JinjaValue JinjaEvaluator::concat(const JinjaExpr& e) {
  std::string out;
  for (const auto& part : e.parts) {
    JinjaValue own;
    const JinjaValue& value = operand(*part, own);
    at_ = e.at;
    jinja_append_str(out, value, work_);
  }
  return JinjaValue(std::move(out));
}

JinjaValue JinjaEvaluator::slice(const JinjaExpr& e) {
  JinjaValue parts[4];
  for (size_t i = 0; i < 4; ++i)
    if (e.parts[i]) parts[i] = evaluate(*e.parts[i]);
  at_ = e.at;
  return jinja_slice(parts[0], parts[1], parts[2], parts[3], work_);
}

JinjaArguments JinjaEvaluator::arguments(const JinjaExpr& e) {
  JinjaArguments out;
  out.positional.reserve(e.parts.size() - 1);
  for (size_t i = 1; i < e.parts.size(); ++i) out.positional.push_back(evaluate(*e.parts[i]));
  for (const auto& [name, value] : e.named) out.named.emplace_back(name, evaluate(*value));
  return out;
}

JinjaValue JinjaEvaluator::filter(const JinjaExpr& e) {
  JinjaValue own;
  const JinjaValue& subject = operand(*e.parts[0], own);
  JinjaArguments given = arguments(e);
  at_ = e.at;
  return e.filter->call(subject, given, work_);
}

JinjaValue JinjaEvaluator::test(const JinjaExpr& e) {
  JinjaValue own, argument;
  const JinjaValue& subject = operand(*e.parts[0], own);
  if (e.parts.size() > 1) argument = evaluate(*e.parts[1]);
  at_ = e.at;
  return e.test->call(subject, argument, work_);
}

JinjaValue JinjaEvaluator::call(const JinjaExpr& e) {
  const JinjaExpr& callee = *e.parts[0];
  if (callee.kind == Node::attribute) {  // without a value for the bound method
    JinjaValue own;
    const JinjaValue& object = operand(*callee.parts[0], own);
    std::string_view name = callee.value.text();
    at_ = callee.at;
    if (jinja_find_method(object, name) == MethodKind::supported) {
      JinjaArguments given = arguments(e);
      at_ = callee.at;
      return jinja_call_method(object, name, given, work_);
    }
    return call_value(e, jinja_attribute(object, name, work_));
  }
  return call_value(e, evaluate(callee));
}

JinjaValue JinjaEvaluator::call_value(const JinjaExpr& e, const JinjaValue& callee) {
  JinjaArguments given = arguments(e);
  at_ = e.parts[0]->at;
  if (callee.is(Kind::undefined)) jinja_fail_undefined(callee);
  if (!callee.is(Kind::callable)) jinja_data_fault(str("'", jinja_type(callee), "' object is not callable"));
  const auto& function = static_cast<const JinjaCallable&>(*callee.object());
  switch (function.kind) {
    case JinjaCallable::Kind::macro:
      return call_macro(*function.macro, function.scope, std::move(given));
    case JinjaCallable::Kind::method:
      return jinja_call_method(function.receiver, function.name, given, work_);
    default:
      return call_global(function.name, std::move(given));
  }
}

JinjaValue JinjaEvaluator::call_macro(const JinjaMacro& macro, JinjaScope* closure, JinjaArguments given) {
  const Deeper deeper(*this);
  const size_t n = macro.parameters.size();
  JinjaValue::List values = std::move(given.positional);
  const size_t positional = values.size();
  values.resize(std::max(n, positional), JinjaValue::missing());
  for (auto& [name, value] : given.named) {
    size_t i = positional;
    while (i < n && macro.parameters[i].second != name) ++i;
    if (i >= n) jinja_data_fault(str("macro '", macro.name, "' takes no keyword argument '", name, "'"));
    values[i] = std::move(value);
  }
  if (positional > n) jinja_data_fault(str("macro '", macro.name, "' takes not more than ", n, " argument(s)"));
  JinjaScope local, *const outer = scope_;
  JinjaScope* const inner = new_scope(closure, macro.body.has_macro, local);
  scope_ = inner;
  const size_t first_default = n - macro.defaults.size();
  for (size_t i = 0; i < n; ++i) {
    const auto& [id, name] = macro.parameters[i];
    if (values[i].is(Kind::missing)) {
      values[i] = i >= first_default ? evaluate(*macro.defaults[i - first_default])
                                     : jinja_undefined_hint(str("parameter ", python_repr(name), " was not provided"));
    }
    inner->set(id, std::move(values[i]));
  }
  JinjaValue out = capture(macro.body);
  scope_ = outer;
  return out;
}

JinjaValue JinjaEvaluator::call_global(std::string_view name, JinjaArguments given) {
  if (name == "range") return jinja_range(given, work_);
  if (name == "namespace") return make_namespace(given);
  if (name == "raise_exception") {
    const auto a = jinja_bind(name, given, {"message"});
    jinja_data_fault(jinja_str(a[0], work_));
  }
  const auto a = jinja_bind(name, given, {"format"});
  if (!a[0].is(Kind::string)) jinja_data_fault("strftime_now() takes a text");
  std::tm now{};
  if (options_.clock) {
    now = options_.clock();
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  return JinjaValue(jinja_strftime(a[0].text(), now));
}

JinjaValue JinjaEvaluator::make_namespace(JinjaArguments& given) {
  auto* object = new JinjaNamespace;
  JinjaValue out(Kind::name_space, object);
  namespaces_.push_back(out);
  if (given.positional.size() > 1) {
    jinja_data_fault(str("dict expected at most 1 argument, got ", given.positional.size()));
  }
  if (!given.positional.empty()) {
    if (!given.positional[0].is(Kind::dict))
      jinja_unsupported("namespace() of something else than a dict is not supported");
    for (const auto& [key, value] : given.positional[0].entries()) {
      if (!key.is(Kind::string)) jinja_unsupported("namespace() of a dict whose keys are not texts is not supported");
      object->set(key.text(), value);
    }
  }
  for (auto& [key, value] : given.named) object->set(key, std::move(value));
  return out;
}

}  // namespace bantam
