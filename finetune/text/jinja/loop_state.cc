// SPDX-License-Identifier: Apache-2.0
#include "loop_state.h"

namespace bantam {

using Kind = JinjaValue::Kind;

JinjaLoopState::JinjaLoopState(JinjaEvaluator& evaluator_, const JinjaStatement& statement_, JinjaValue source_)
    : evaluator(&evaluator_), statement(statement_), outer(evaluator_.scope_), source(std::move(source_)) {}

bool JinjaLoopState::next_item(JinjaValue& item) {
  auto& sequence = as_sequence(source);
  size_t& position = sequence.kind == SequenceKind::iterator ? sequence.read : at;
  while (evaluator != nullptr && position < sequence.items.size()) {
    item = sequence.items[position++];
    if (!statement.test || tested) return true;
    evaluator->work_.charge(1);
    JinjaScope scope, *const inner = evaluator->scope_;
    scope.parent = outer;
    evaluator->scope_ = &scope;
    evaluator->assign(statement.target, item);
    const bool keep = evaluator->holds(*statement.test);
    evaluator->scope_ = inner;
    if (keep) return true;
  }
  return false;
}

bool JinjaLoopState::peek() {
  if (!after.is(Kind::missing)) return true;
  JinjaValue item;
  if (!next_item(item)) return false;
  after = std::move(item);
  return true;
}

bool JinjaLoopState::advance() {
  if (!peek()) return false;
  before = index0 < 0 ? JinjaValue::missing() : current;
  current = after;
  after = JinjaValue::missing();
  ++index0;
  return true;
}

int64_t JinjaLoopState::length() {
  if (known_length >= 0) return known_length;
  const bool counted = !statement.test && !is_sequence_of(source, SequenceKind::iterator);
  if (counted) return known_length = static_cast<int64_t>(source.items().size());
  JinjaValue::List rest;
  for (JinjaValue item; next_item(item);) rest.push_back(item);
  known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + !after.is(Kind::missing);
  // From here on the items that the condition keeps are the source; they are not tested again.
  source = JinjaValue::list(std::move(rest));
  at = 0;
  tested = true;
  return known_length;
}

JinjaValue JinjaLoopState::attribute(std::string_view name) {
  if (name == "index0") return index0;
  if (name == "index") return index0 + 1;
  if (name == "first") return index0 == 0;
  if (name == "last") return !peek();
  if (name == "length") return length();
  if (name == "revindex") return length() - index0;
  if (name == "revindex0") return length() - index0 - 1;
  if (name == "depth") return 1;
  if (name == "depth0") return 0;
  if (name == "previtem") {
    return before.is(Kind::missing) ? jinja_undefined_hint("there is no previous item") : before;
  }
  if (name == "nextitem") return peek() ? after : jinja_undefined_hint("there is no next item");
  if (name == "cycle" || name == "changed") jinja_unsupported(str("'loop.", name, "' is not supported"));
  return JinjaValue::missing();
}

}  // namespace bantam
