// SPDX-License-Identifier: Apache-2.0
// Attributes, subscripts, calls, filters and tests behind an operand.
#include <algorithm>

#include "../utf8.h"
#include "expression_parser.h"
#include "methods.h"

namespace bantam {

using Kind = JinjaTokenKind;
using Node = JinjaExprKind;

JinjaExprPtr JinjaExpressionParser::postfix(JinjaExprPtr e) {
  while (true) {
    if (is_symbol(".")) {
      e = dotted(std::move(e));
    } else if (is_symbol("[")) {
      e = subscript(std::move(e));
    } else if (is_symbol("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

JinjaExprPtr JinjaExpressionParser::filters_and_tests(JinjaExprPtr e) {
  while (true) {
    if (skip_symbol("|")) {
      e = filter(std::move(e));
    } else if (is_word("is")) {
      e = test(std::move(e));
    } else if (is_symbol("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

JinjaExprPtr JinjaExpressionParser::filters(JinjaExprPtr e, bool inside) {
  if (inside) e = filter(std::move(e));
  while (skip_symbol("|")) e = filter(std::move(e));
  return e;
}

JinjaExprPtr JinjaExpressionParser::dotted(JinjaExprPtr object) {
  const size_t at = token().at;
  advance();
  const JinjaToken t = token();
  if (t.kind == Kind::integer) return pair(Node::item, at, std::move(object), number());
  if (t.kind != Kind::name) fail(t.at, "expected a name or a number after '.'");
  advance();
  static constexpr std::string_view kLoop[] = {"index",    "index0",   "first",     "last",  "length", "nextitem",
                                               "previtem", "revindex", "revindex0", "depth", "depth0"};
  if (object->kind == Node::name && object->id == tree_.loop_id && !loop_uses_.empty() &&
      std::find(std::begin(kLoop), std::end(kLoop), t.text) == std::end(kLoop)) {
    fail(t.at, str("unknown attribute 'loop.", t.text, "'"));
  }
  auto e = node(Node::attribute, at);
  e->value = JinjaValue(t.text);
  e->parts.push_back(std::move(object));
  return done(std::move(e));
}

JinjaExprPtr JinjaExpressionParser::subscript(JinjaExprPtr object) {
  const size_t at = token().at;
  const Level level(*this, at);
  advance();
  JinjaExprPtr first;
  if (!is_symbol(":")) {
    first = expression();
    if (is_symbol(",")) fail(token().at, "several indices are not supported");
    if (skip_symbol("]")) return pair(Node::item, at, std::move(object), std::move(first));
  }
  auto e = node(Node::slice, at);
  e->parts.push_back(std::move(object));
  e->parts.push_back(std::move(first));
  for (int i = 0; i < 2; ++i) {
    const bool given = skip_symbol(":") && !is_symbol(":") && !is_symbol("]");
    e->parts.push_back(given ? expression() : nullptr);
  }
  if (!skip_symbol("]")) fail(token().at, "expected ']'");
  return done(std::move(e));
}

void JinjaExpressionParser::arguments(JinjaExpr& e) {
  bool first = true;
  while (!is_symbol(")")) {
    if (!first) {
      if (!skip_symbol(",")) fail(token().at, "expected ',' or ')'");
      if (is_symbol(")")) break;
    }
    first = false;
    if (is_symbol("*") || is_symbol("**")) fail(token().at, str("'", token().text, "' arguments are not supported"));
    if (token().kind == Kind::name && tokens_[at_ + 1].kind == Kind::symbol && tokens_[at_ + 1].text == "=") {
      const std::string name(token().text);
      const size_t at = token().at;
      for (const auto& n : e.named)
        if (n.first == name) fail(at, str("argument '", name, "' is given twice"));
      advance();
      advance();
      e.named.emplace_back(name, expression());
    } else {
      if (!e.named.empty()) fail(token().at, "an argument without a name follows one with a name");
      e.parts.push_back(expression());
    }
  }
  advance();
}

JinjaExprPtr JinjaExpressionParser::call(JinjaExprPtr callee) {
  const size_t at = token().at;
  const Level level(*this, at);
  advance();
  if (callee->kind == Node::name) called_names_.emplace_back(callee->id, callee->at);
  if (callee->kind == Node::attribute && jinja_no_method(callee->value.text())) {
    fail(callee->at, str("unknown method '", callee->value.text(), "'"));
  }
  auto e = node(Node::call, at);
  e->parts.push_back(std::move(callee));
  arguments(*e);
  return done(std::move(e));
}

JinjaExprPtr JinjaExpressionParser::filter(JinjaExprPtr subject) {
  const JinjaToken t = token();
  expect(Kind::name, "the name of a filter");
  const Level level(*this, t.at);
  auto e = node(Node::filter, t.at);
  e->filter = jinja_find_filter(t.text);
  if (e->filter == nullptr) fail(t.at, str("unknown filter '", t.text, "'"));
  e->parts.push_back(std::move(subject));
  if (skip_symbol("(")) arguments(*e);
  check_filter(*e, t.text);
  return done(std::move(e));
}

void JinjaExpressionParser::check_filter(const JinjaExpr& e, std::string_view name) const {
  const auto& f = *e.filter;
  const size_t given = e.parts.size() - 1;
  if (!f.any) {
    if (given > f.parameters.size()) {
      fail(e.at, str("filter '", name, "' takes at most ", f.parameters.size(), " arguments"));
    }
    for (const auto& [key, value] : e.named) {
      if (std::find(f.parameters.begin(), f.parameters.end(), key) == f.parameters.end()) {
        fail(e.at, str("unknown argument '", key, "' of filter '", name, "'"));
      }
    }
    if (given + e.named.size() < f.required) fail(e.at, str("filter '", name, "' needs an argument"));
    return;
  }
  // The names of filters and tests that are handed on.
  const auto constant = [&](size_t i) -> const std::string* {
    const bool text =
        e.parts.size() > i && e.parts[i]->kind == Node::constant && e.parts[i]->value.is(JinjaValue::Kind::string);
    return text ? &e.parts[i]->value.text() : nullptr;
  };
  if (name == "map") {
    if (given == 0 && e.named.empty()) fail(e.at, "filter 'map' needs an argument");
    const auto* n = constant(1);
    if (n != nullptr && jinja_find_filter(*n) == nullptr) fail(e.parts[1]->at, str("unknown filter '", *n, "'"));
    for (const auto& [key, value] : e.named) {
      if (given == 0 && key != "attribute" && key != "default")
        fail(e.at, str("unknown argument '", key, "' of filter 'map'"));
    }
    return;
  }
  if (!e.named.empty()) fail(e.at, str("unknown argument '", e.named[0].first, "' of filter '", name, "'"));
  const size_t at = name.ends_with("attr") ? 2 : 1;
  if (at == 2 && given == 0) fail(e.at, str("filter '", name, "' needs an argument"));
  const auto* n = constant(at);
  if (n != nullptr && jinja_find_test(*n) == nullptr) fail(e.parts[at]->at, str("unknown test '", *n, "'"));
}

JinjaExprPtr JinjaExpressionParser::test(JinjaExprPtr subject) {
  const size_t at = token().at;
  advance();
  const bool negated = skip_word("not");
  const JinjaToken t = token();
  expect(Kind::name, "the name of a test");
  const Level level(*this, t.at);
  auto e = node(Node::test, t.at);
  e->test = jinja_find_test(t.text);
  if (e->test == nullptr) fail(t.at, str("unknown test '", t.text, "'"));
  e->parts.push_back(std::move(subject));
  const auto kind = token().kind;
  if (skip_symbol("(")) {
    arguments(*e);
  } else if ((kind == Kind::name && !is_word("else") && !is_word("or") && !is_word("and")) || kind == Kind::string ||
             kind == Kind::integer || kind == Kind::real || is_symbol("[") || is_symbol("{")) {
    if (is_word("is")) fail(token().at, "tests cannot be chained with 'is'");
    e->parts.push_back(postfix(primary()));
  }
  const auto given = static_cast<int>(e->parts.size()) - 1;
  if (!e->named.empty() || given != e->test->arguments) {
    fail(t.at, str("test '", t.text, "' takes ", e->test->arguments, " arguments, found ", given + e->named.size()));
  }
  e = done(std::move(e));
  if (!negated) return e;
  auto n = node(Node::logic_not, at);
  n->parts.push_back(std::move(e));
  return done(std::move(n));
}

}  // namespace bantam
