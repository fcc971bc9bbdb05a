// SPDX-License-Identifier: Apache-2.0
// The expressions of jinja_parse.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ast.h"
#include "lexer.h"

namespace bantam {

class JinjaExpressionParser {
 public:
  JinjaExpressionParser(JinjaTree& tree, std::vector<JinjaToken> tokens) : tree_(tree), tokens_(std::move(tokens)) {}

 protected:
  // Parsing recurses; so do evaluation and freeing, over the same levels.
  struct Level {
    Level(JinjaExpressionParser& parser, size_t at);
    ~Level() { --parser.level_; }
    JinjaExpressionParser& parser;
  };

  [[noreturn]] void fail(size_t at, std::string message) const { throw JinjaSyntaxError{at, std::move(message)}; }
  const JinjaToken& token() const { return tokens_[at_]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool is_symbol(std::string_view s) const { return token().kind == JinjaTokenKind::symbol && token().text == s; }
  bool is_word(std::string_view s) const { return token().kind == JinjaTokenKind::name && token().text == s; }
  bool skip_symbol(std::string_view s);
  bool skip_word(std::string_view s);
  void expect(JinjaTokenKind kind, const char* what);
  static bool is_constant_word(std::string_view s);

  int name_id(std::string_view name);
  JinjaExprPtr node(JinjaExprKind kind, size_t at) const;
  /// Sets the depth of a node whose parts are complete.
  JinjaExprPtr done(JinjaExprPtr e) const;

  /// One expression, or several with commas between them. `conditional`: "a if b" is one; `parenthesized`: may be
  /// empty.
  JinjaExprPtr tuple(bool conditional, bool parenthesized);
  JinjaExprPtr expression();
  /// "| f | g" behind `e`; `inside`: the first "|" is left out.
  JinjaExprPtr filters(JinjaExprPtr e, bool inside);

  JinjaTree& tree_;
  std::vector<bool*> loop_uses_;  ///< of the loops around
  std::vector<std::pair<int, size_t>> called_names_;
  int macros_open_ = 0;

 private:
  JinjaExprPtr logic_or();
  JinjaExprPtr logic_and();
  JinjaExprPtr logic_not();
  JinjaExprPtr comparison();
  JinjaExprPtr sum();
  JinjaExprPtr concat();
  JinjaExprPtr product();
  JinjaExprPtr unary(bool with_filters);
  JinjaExprPtr primary();
  JinjaExprPtr name_or_constant();
  JinjaExprPtr number();
  JinjaExprPtr postfix(JinjaExprPtr e);
  JinjaExprPtr filters_and_tests(JinjaExprPtr e);
  JinjaExprPtr dotted(JinjaExprPtr e);
  JinjaExprPtr subscript(JinjaExprPtr e);
  JinjaExprPtr call(JinjaExprPtr callee);
  JinjaExprPtr filter(JinjaExprPtr subject);
  JinjaExprPtr test(JinjaExprPtr subject);
  void arguments(JinjaExpr& e);
  void check_filter(const JinjaExpr& e, std::string_view name) const;
  JinjaExprPtr pair(JinjaExprKind kind, size_t at, JinjaExprPtr a, JinjaExprPtr b) const;

  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::unordered_map<std::string, int> ids_;
};

}  // namespace bantam
