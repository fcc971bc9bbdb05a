// SPDX-License-Identifier: Apache-2.0
// Operators and literals; what follows an operand is in postfix_parser.cc.
#include "expression_parser.h"

#include <algorithm>
#include <charconv>

#include "../utf8.h"

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

}  // namespace bantam
