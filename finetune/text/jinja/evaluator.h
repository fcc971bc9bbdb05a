// SPDX-License-Identifier: Apache-2.0
// One rendering of a tree.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "ast.h"

namespace bantam {

/// Variables of a loop's pass, a macro's call or a block; the template's own are in an array by name.
struct JinjaScope {
  JinjaScope* parent = nullptr;
  std::vector<std::pair<int, JinjaValue>> variables;

  void set(int id, JinjaValue value);
};

class JinjaEvaluator {
 public:
  JinjaEvaluator(const JinjaTree& tree, const JinjaValue& context, const JinjaOptions& options);
  ~JinjaEvaluator();
  JinjaEvaluator(const JinjaEvaluator&) = delete;

  Rendered run();
  size_t at() const { return at_; }  ///< what was evaluated when a fault was thrown

 private:
  friend struct JinjaLoopState;
  enum class Flow : uint8_t { on, stop, next };
  struct Deeper {
    explicit Deeper(JinjaEvaluator& evaluator);
    ~Deeper() { --evaluator.depth_; }
    JinjaEvaluator& evaluator;
  };

  // statements
  Flow execute(const JinjaBody& body);
  Flow execute(const JinjaStatement& s);
  Flow choose(const JinjaStatement& s);
  Flow loop(const JinjaStatement& s);
  Flow in_new_scope(const JinjaBody& body);
  void generation(const JinjaStatement& s);
  JinjaValue capture(const JinjaBody& body);
  JinjaValue captured_through(const JinjaStatement& s);
  void emit(const JinjaValue& v);
  void emit_text(std::string_view text);
  void assign(const JinjaTarget& target, const JinjaValue& value);
  void assign_name(int id, const JinjaValue& value);

  // expressions
  JinjaValue evaluate(const JinjaExpr& e);
  /// The value without a copy where there is one to point at, else in `own`. Variables stay what they are while an
  /// expression is evaluated: a macro sets its own.
  const JinjaValue& operand(const JinjaExpr& e, JinjaValue& own);
  bool holds(const JinjaExpr& e);
  JinjaValue container(const JinjaExpr& e);
  JinjaValue compare(const JinjaExpr& e);
  JinjaValue arithmetic(const JinjaExpr& e);
  JinjaValue concat(const JinjaExpr& e);
  JinjaValue slice(const JinjaExpr& e);
  JinjaValue filter(const JinjaExpr& e);
  JinjaValue test(const JinjaExpr& e);
  JinjaValue call(const JinjaExpr& e);
  JinjaValue call_value(const JinjaExpr& e, const JinjaValue& callee);
  JinjaValue call_macro(const JinjaMacro& macro, JinjaScope* closure, JinjaArguments arguments);
  JinjaValue call_global(std::string_view name, JinjaArguments arguments);
  JinjaValue make_namespace(JinjaArguments& arguments);
  JinjaArguments arguments(const JinjaExpr& e);
  const JinjaValue& lookup(int id);
  JinjaScope* new_scope(JinjaScope* parent, bool outlives, JinjaScope& local);

  const JinjaTree& tree_;
  const JinjaValue& context_;
  const JinjaOptions& options_;
  JinjaWork work_;
  uint64_t iterations_left_;
  int depth_ = 0;
  size_t at_ = 0;
  JinjaScope* scope_ = nullptr;         // null: the template's own
  std::vector<JinjaValue> globals_;     // by name id; missing: not looked up yet
  std::deque<JinjaScope> kept_;         // scopes that macros were defined in
  std::vector<JinjaValue> namespaces_;  // all that were made: they may hold each other, and are emptied at the end
  JinjaValue captured_;
  Rendered* out_ = nullptr;
};

/// range(), as Jinja's sandbox has it: at most 100,000 numbers.
JinjaValue jinja_range(JinjaArguments& arguments, JinjaWork& work);
/// strftime of the fields that are numbers or English names; Error(model) for others.
std::string jinja_strftime(std::string_view format, const std::tm& time);

}  // namespace bantam
