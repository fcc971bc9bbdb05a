// SPDX-License-Identifier: Apache-2.0
#include "parser.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_map>

#include "../utf8.h"
#include "expression_parser.h"

namespace bantam {
namespace {

using Kind = JinjaTokenKind;
using Words = std::vector<std::string_view>;
constexpr size_t kMostSourceBytes = size_t{4} << 20;

class Parser : public JinjaExpressionParser {
 public:
  using JinjaExpressionParser::JinjaExpressionParser;

  void run() {
    tree_.loop_id = name_id("loop");
    tree_.body = body({});
    check_calls();
  }

 private:
  // Statements up to a block that begins with one of `ends`, which is left standing at that word.
  JinjaBody body(const Words& ends) {
    JinjaBody out;
    scopes_.push_back(&out.has_macro);
    while (true) {
      const JinjaToken& t = token();
      if (t.kind == Kind::end) {
        if (!ends.empty()) fail(opened_.back(), str("this block is not closed: '", ends.back(), "' is missing"));
        break;
      }
      advance();
      if (t.kind == Kind::data) {
        statement(out, JinjaStatementKind::text, t.at).text = t.text;
      } else if (t.kind == Kind::variable_begin) {
        auto& s = statement(out, JinjaStatementKind::output, token().at);
        s.expr = tuple(true, false);
        expect(Kind::variable_end, "'}}'");
      } else {
        if (token().kind == Kind::name && std::find(ends.begin(), ends.end(), token().text) != ends.end()) break;
        block(out);
        expect(Kind::block_end, "'%}'");
      }
    }
    scopes_.pop_back();
    return out;
  }

  // A body behind the head of a block, and the word that ended it, which is consumed.
  JinjaBody inner(size_t at, const Words& ends, std::string_view* end = nullptr) {
    skip_symbol(":");
    expect(Kind::block_end, "'%}'");
    opened_.push_back(at);
    JinjaBody out = body(ends);
    opened_.pop_back();
    if (end != nullptr) *end = token().text;
    advance();
    return out;
  }

  JinjaStatement& statement(JinjaBody& out, JinjaStatementKind kind, size_t at) {
    out.statements.push_back(std::make_unique<JinjaStatement>());
    auto& s = *out.statements.back();
    s.kind = kind;
    s.at = static_cast<uint32_t>(at);
    return s;
  }

  void block(JinjaBody& out) {
    const Level level(*this, token().at);
    const JinjaToken head = token();
    if (head.kind != Kind::name) fail(head.at, "expected the name of a statement");
    advance();
    if (head.text == "if") return choice(out, head.at);
    if (head.text == "for") return loop(out, head.at);
    if (head.text == "set") return set(out, head.at);
    if (head.text == "macro") return macro(out, head.at);
    if (head.text == "filter") return filter_block(out, head.at);
    if (head.text == "generation") {
      auto& s = statement(out, JinjaStatementKind::generation, head.at);
      tree_.has_generation = true;
      const Outside outside(*this);
      s.body = inner(head.at, {"endgeneration"});
      return;
    }
    if (head.text == "break" || head.text == "continue") {
      if (!in_loop_) fail(head.at, str("'", head.text, "' outside of a loop, or in a block that cannot be left by it"));
      statement(out, head.text == "break" ? JinjaStatementKind::stop : JinjaStatementKind::next, head.at);
      return;
    }
    static constexpr std::string_view kUnsupported[] = {"autoescape", "block",  "call",    "debug", "do",    "extends",
                                                        "from",       "import", "include", "print", "trans", "with"};
    if (std::find(std::begin(kUnsupported), std::end(kUnsupported), head.text) != std::end(kUnsupported)) {
      fail(head.at, str("statement '", head.text, "' is not supported"));
    }
    static constexpr std::string_view kInner[] = {"else",     "elif",      "endif",  "endfor",       "endset",
                                                  "endmacro", "endfilter", "endraw", "endgeneration"};
    const bool misplaced = std::find(std::begin(kInner), std::end(kInner), head.text) != std::end(kInner);
    fail(head.at, str(misplaced ? "misplaced" : "unknown", " statement '", printable(head.text, 60), "'"));
  }

  void choice(JinjaBody& out, size_t at) {
    auto& s = statement(out, JinjaStatementKind::choice, at);
    std::string_view end = "elif";
    while (end == "elif") {
      JinjaExprPtr condition = tuple(false, false);
      JinjaBody branch = inner(at, {"elif", "else", "endif"}, &end);
      s.branches.emplace_back(std::move(condition), std::move(branch));
    }
    if (end == "else") s.otherwise = inner(at, {"endif"});
  }

  void loop(JinjaBody& out, size_t at) {
    auto& s = statement(out, JinjaStatementKind::loop, at);
    ++loops_open_;
    s.target = target(false);
    if (!skip_word("in")) fail(token().at, "expected 'in'");
    s.expr = tuple(false, false);
    if (skip_word("if")) s.test = expression();
    if (is_word("recursive")) fail(token().at, "recursive loops are not supported");
    const bool outer_in_loop = in_loop_;
    in_loop_ = true;
    loop_uses_.push_back(&s.uses_loop);
    std::string_view end;
    s.body = inner(at, {"endfor", "else"}, &end);
    loop_uses_.pop_back();
    in_loop_ = outer_in_loop;
    if (end == "else") s.otherwise = inner(at, {"endfor"});
    --loops_open_;
  }

  void set(JinjaBody& out, size_t at) {
    auto& s = statement(out, JinjaStatementKind::set, at);
    s.target = target(true);
    if (skip_symbol("=")) {
      s.expr = tuple(true, false);
      return;
    }
    s.kind = JinjaStatementKind::set_block;
    s.expr = filters(node(JinjaExprKind::captured, at), false);
    const Outside outside(*this);
    s.body = inner(at, {"endset"});
  }

  void filter_block(JinjaBody& out, size_t at) {
    auto& s = statement(out, JinjaStatementKind::filter_block, at);
    s.expr = filters(node(JinjaExprKind::captured, at), true);
    const Outside outside(*this);
    s.body = inner(at, {"endfilter"});
  }

  void macro(JinjaBody& out, size_t at) {
    auto& s = statement(out, JinjaStatementKind::macro, at);
    for (bool* flag : scopes_) *flag = true;
    auto& m = s.macro;
    m.name = word("the name of a macro");
    m.id = assign(m.name, at);
    if (!skip_symbol("(")) fail(token().at, "expected '('");
    while (!is_symbol(")")) {
      if (!m.parameters.empty() && !skip_symbol(",")) fail(token().at, "expected ',' or ')'");
      const size_t where = token().at;
      const std::string name = word("the name of a parameter");
      if (name == "caller") fail(where, "'caller' is not supported");
      m.parameters.emplace_back(assign(name, where), name);
      if (skip_symbol("=")) {
        m.defaults.push_back(expression());
      } else if (!m.defaults.empty()) {
        fail(where, "a parameter without default follows one with a default");
      }
    }
    advance();
    const Outside outside(*this);
    ++macros_open_;
    m.body = inner(at, {"endmacro"});
    --macros_open_;
  }

  std::string word(const char* what) {
    if (token().kind != Kind::name) fail(token().at, str("expected ", what));
    const std::string out(token().text);
    advance();
    return out;
  }

  int assign(const std::string& name, size_t at) {
    if (is_constant_word(name)) fail(at, str("cannot assign to '", name, "'"));
    if (name == "loop" && loops_open_ > 0) fail(at, "cannot assign to 'loop' inside of a loop");
    const int id = name_id(name);
    assigned_.insert(id);
    return id;
  }

  JinjaTarget target(bool with_namespace) {
    JinjaTarget out;
    out.at = static_cast<uint32_t>(token().at);
    std::vector<JinjaTarget> parts;
    bool comma = false;
    while (true) {
      if (comma && (is_word("in") || is_symbol("=") || is_symbol(")") || token().kind == Kind::block_end)) break;
      parts.push_back(one_target(with_namespace));
      if (!skip_symbol(",")) break;
      comma = true;
    }
    if (!comma) return std::move(parts[0]);
    out.parts = std::move(parts);
    return out;
  }
  JinjaTarget one_target(bool with_namespace) {
    const Level level(*this, token().at);
    if (skip_symbol("(")) {
      JinjaTarget out = target(with_namespace);
      if (!skip_symbol(")")) fail(token().at, "expected ')'");
      return out;
    }
    JinjaTarget out;
    out.at = static_cast<uint32_t>(token().at);
    const std::string name = word("a name to assign to");
    if (with_namespace && skip_symbol(".")) {
      out.id = name_id(name);
      out.attribute = word("the name of an attribute");
    } else {
      out.id = assign(name, out.at);
    }
    return out;
  }

  // What is captured or called cannot be left by break or continue.
  struct Outside {
    explicit Outside(Parser& p) : parser(p), before(p.in_loop_) { p.in_loop_ = false; }
    ~Outside() { parser.in_loop_ = before; }
    Parser& parser;
    bool before;
  };

  // The context holds data only: a name that is called is a macro, a variable of the template or a function of ours.
  void check_calls() {
    for (const auto& [id, at] : called_names_) {
      const std::string& name = tree_.names[static_cast<size_t>(id)];
      const bool global =
          std::find(std::begin(kJinjaGlobals), std::end(kJinjaGlobals), name) != std::end(kJinjaGlobals);
      if (!global && assigned_.count(id) == 0) fail(at, str("unknown function '", name, "'"));
    }
  }

  std::vector<size_t> opened_;
  std::vector<bool*> scopes_;
  std::set<int> assigned_;
  bool in_loop_ = false;
  int loops_open_ = 0;
};

}  // namespace

std::unique_ptr<const JinjaTree> jinja_parse(std::string source) {
  auto tree = std::make_unique<JinjaTree>();
  if (source.size() > kMostSourceBytes)
    throw JinjaSyntaxError{0, str("a template of more than ", kMostSourceBytes, " bytes")};
  tree->source = jinja_normalize(source);
  if (const size_t valid = utf8_valid_prefix(tree->source); valid < tree->source.size()) {
    throw JinjaSyntaxError{valid, "not UTF-8"};
  }
  Parser(*tree, jinja_tokens(tree->source)).run();
  return tree;
}

}  // namespace bantam
