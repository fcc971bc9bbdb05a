// SPDX-License-Identifier: Apache-2.0
#include "expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "../utf8.h"
#include "methods.h"

namespace bantam {
namespace {

using Kind = JinjaTokenKind;
using Node = JinjaExprKind;

constexpr int kMostLevels = 100;      // of nested blocks and brackets
constexpr uint16_t kMostDepth = 400;  // of an expression; a + b + c + ... is one level each

}  // namespace

JinjaExpressionParser::Level::Level(JinjaExpressionParser& p, size_t at) : parser(p) {
  if (++parser.level_ > kMostLevels) {
    --parser.level_;
    parser.fail(at, str("nested deeper than ", kMostLevels, " levels"));
  }
}

bool JinjaExpressionParser::skip_symbol(std::string_view s) {
  if (!is_symbol(s)) return false;
  advance();
  return true;
}

bool JinjaExpressionParser::skip_word(std::string_view s) {
  if (!is_word(s)) return false;
  advance();
  return true;
}

void JinjaExpressionParser::expect(JinjaTokenKind kind, const char* what) {
  if (token().kind != kind) {
    const auto& t = token();
    fail(t.at, t.kind == Kind::end ? str("expected ", what, ", found the end of the template")
                                   : str("expected ", what, ", found '", printable(t.text, 40), "'"));
  }
  advance();
}

bool JinjaExpressionParser::is_constant_word(std::string_view s) {
  return s == "true" || s == "false" || s == "none" || s == "True" || s == "False" || s == "None";
}

int JinjaExpressionParser::name_id(std::string_view name) {
  const auto [it, added] = ids_.emplace(std::string(name), static_cast<int>(tree_.names.size()));
  if (added) tree_.names.emplace_back(name);
  return it->second;
}

JinjaExprPtr JinjaExpressionParser::node(JinjaExprKind kind, size_t at) const {
  auto e = std::make_unique<JinjaExpr>();
  e->kind = kind;
  e->at = static_cast<uint32_t>(at);
  return e;
}

JinjaExprPtr JinjaExpressionParser::done(JinjaExprPtr e) const {
  const auto deeper = [&](const JinjaExprPtr& part) {
    if (part && part->depth >= e->depth) e->depth = static_cast<uint16_t>(part->depth + 1);
  };
  for (const auto& part : e->parts) deeper(part);
  for (const auto& [name, part] : e->named) deeper(part);
  if (e->depth > kMostDepth) fail(e->at, str("an expression of more than ", kMostDepth, " levels"));
  return e;
}

JinjaExprPtr JinjaExpressionParser::pair(JinjaExprKind kind, size_t at, JinjaExprPtr a, JinjaExprPtr b) const {
  auto e = node(kind, at);
  e->parts.push_back(std::move(a));
  e->parts.push_back(std::move(b));
  return done(std::move(e));
}

JinjaExprPtr JinjaExpressionParser::tuple(bool conditional, bool parenthesized) {
  const size_t at = token().at;
  std::vector<JinjaExprPtr> items;
  bool comma = false;
  while (true) {
    if (token().kind == Kind::variable_end || token().kind == Kind::block_end || is_symbol(")")) break;
    items.push_back(conditional ? expression() : logic_or());
    if (!skip_symbol(",")) break;
    comma = true;
  }
  if (!comma && items.size() == 1) return std::move(items[0]);
  if (items.empty() && !parenthesized) fail(at, "expected an expression");
  auto e = node(Node::tuple, at);
  e->parts = std::move(items);
  return done(std::move(e));
}

JinjaExprPtr JinjaExpressionParser::expression() {
  const Level level(*this, token().at);
  JinjaExprPtr e = logic_or();
  while (is_word("if")) {
    const size_t at = token().at;
    advance();
    auto c = node(Node::conditional, at);
    c->parts.push_back(std::move(e));
    c->parts.push_back(logic_or());
    c->parts.push_back(skip_word("else") ? expression() : nullptr);
    e = done(std::move(c));
  }
  return e;
}

JinjaExprPtr JinjaExpressionParser::logic_or() {
  JinjaExprPtr e = logic_and();
  while (is_word("or")) {
    const size_t at = token().at;
    advance();
    e = pair(Node::logic_or, at, std::move(e), logic_and());
  }
  return e;
}

JinjaExprPtr JinjaExpressionParser::logic_and() {
  JinjaExprPtr e = logic_not();
  while (is_word("and")) {
    const size_t at = token().at;
    advance();
    e = pair(Node::logic_and, at, std::move(e), logic_not());
  }
  return e;
}

JinjaExprPtr JinjaExpressionParser::logic_not() {
  if (!is_word("not")) return comparison();
  const Level level(*this, token().at);
  auto e = node(Node::logic_not, token().at);
  advance();
  e->parts.push_back(logic_not());
  return done(std::move(e));
}

JinjaExprPtr JinjaExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, JinjaComparison> kOperators[] = {
      {"==", JinjaComparison::equal},      {"!=", JinjaComparison::not_equal}, {"<", JinjaComparison::less},
      {"<=", JinjaComparison::less_equal}, {">", JinjaComparison::greater},    {">=", JinjaComparison::greater_equal}};
  JinjaExprPtr first = sum();
  JinjaExprPtr e;
  while (true) {
    const size_t at = token().at;
    const auto* op =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& o) { return is_symbol(o.first); });
    JinjaComparison which;
    if (op != std::end(kOperators)) {
      which = op->second;
      advance();
    } else if (skip_word("in")) {
      which = JinjaComparison::in;
    } else if (is_word("not") && tokens_[at_ + 1].kind == Kind::name && tokens_[at_ + 1].text == "in") {
      which = JinjaComparison::not_in;
      advance();
      advance();
    } else {
      break;
    }
    if (!e) {
      e = node(Node::compare, at);
      e->parts.push_back(std::move(first));
    }
    e->comparisons.push_back(which);
    e->parts.push_back(sum());
  }
  return e ? done(std::move(e)) : std::move(first);
}

JinjaExprPtr JinjaExpressionParser::sum() {
  JinjaExprPtr e = concat();
  while (is_symbol("+") || is_symbol("-")) {
    const auto op = is_symbol("+") ? JinjaOperator::add : JinjaOperator::subtract;
    const size_t at = token().at;
    advance();
    e = pair(Node::arithmetic, at, std::move(e), concat());
    e->op = op;
  }
  return e;
}

JinjaExprPtr JinjaExpressionParser::concat() {
  JinjaExprPtr first = product();
  if (!is_symbol("~")) return first;
  auto e = node(Node::concat, token().at);
  e->parts.push_back(std::move(first));
  while (skip_symbol("~")) e->parts.push_back(product());
  return done(std::move(e));
}

JinjaExprPtr JinjaExpressionParser::product() {
  static constexpr std::pair<std::string_view, JinjaOperator> kOperators[] = {{"*", JinjaOperator::multiply},
                                                                              {"/", JinjaOperator::divide},
                                                                              {"//", JinjaOperator::floor_divide},
                                                                              {"%", JinjaOperator::modulo}};
  JinjaExprPtr e = unary(true);
  while (true) {
    if (is_symbol("**")) fail(token().at, "operator '**' is not supported");
    const auto* op =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& o) { return is_symbol(o.first); });
    if (op == std::end(kOperators)) return e;
    const size_t at = token().at;
    advance();
    e = pair(Node::arithmetic, at, std::move(e), unary(true));
    e->op = op->second;
  }
}

JinjaExprPtr JinjaExpressionParser::unary(bool with_filters) {
  JinjaExprPtr e;
  if (is_symbol("-") || is_symbol("+")) {
    const Level level(*this, token().at);
    e = node(is_symbol("-") ? Node::negative : Node::positive, token().at);
    advance();
    e->parts.push_back(unary(false));
    e = done(std::move(e));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

JinjaExprPtr JinjaExpressionParser::name_or_constant() {
  const JinjaToken t = token();
  advance();
  if (is_constant_word(t.text)) {
    auto e = node(Node::constant, t.at);
    if (t.text[0] == 't' || t.text[0] == 'T') e->value = true;
    if (t.text[0] == 'f' || t.text[0] == 'F') e->value = false;
    return e;
  }
  if (macros_open_ > 0 && (t.text == "caller" || t.text == "varargs" || t.text == "kwargs")) {
    fail(t.at, str("'", t.text, "' in a macro is not supported"));
  }
  auto e = node(Node::name, t.at);
  e->id = name_id(t.text);
  if (e->id == tree_.loop_id)
    for (bool* flag : loop_uses_) *flag = true;
  return e;
}

JinjaExprPtr JinjaExpressionParser::number() {
  const JinjaToken t = token();
  advance();
  std::string digits;
  for (const char c : t.text)
    if (c != '_') digits.push_back(c);
  auto e = node(Node::constant, t.at);
  if (t.kind == Kind::integer) {
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) {
      fail(t.at, "a whole number beyond 64 bits");
    }
    e->value = value;
  } else {
    double value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) {
      fail(t.at, "a number beyond the range of doubles");
    }
    e->value = value;
  }
  return e;
}

JinjaExprPtr JinjaExpressionParser::primary() {
  const JinjaToken t = token();
  switch (t.kind) {
    case Kind::name:
      return name_or_constant();
    case Kind::integer:
    case Kind::real:
      return number();
    case Kind::string: {
      std::string text;
      for (; token().kind == Kind::string; advance()) text += jinja_unescape(token().text, token().at);
      auto e = node(Node::constant, t.at);
      e->value = JinjaValue(std::move(text));
      return e;
    }
    default:
      break;
  }
  const Level level(*this, t.at);
  if (skip_symbol("(")) {
    JinjaExprPtr e = tuple(true, true);
    if (!skip_symbol(")")) fail(token().at, "expected ')'");
    return e;
  }
  const bool list = is_symbol("["), dict = is_symbol("{");
  if (!list && !dict) {
    fail(t.at,
         t.kind == Kind::end ? "unexpected end of the template" : str("unexpected '", printable(t.text, 40), "'"));
  }
  advance();
  const std::string_view close = list ? "]" : "}";
  auto e = node(list ? Node::list : Node::dict, t.at);
  while (!is_symbol(close)) {
    if (!e->parts.empty()) {
      if (!skip_symbol(",")) fail(token().at, str("expected ',' or '", close, "'"));
      if (is_symbol(close)) break;
    }
    e->parts.push_back(expression());
    if (list) continue;
    if (!skip_symbol(":")) fail(token().at, "expected ':'");
    e->parts.push_back(expression());
  }
  advance();
  return done(std::move(e));
}

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
