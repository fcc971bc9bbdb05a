// SPDX-License-Identifier: Apache-2.0
// Statements and scopes; expressions are in evaluate.cc.
#include "evaluator.h"

#include <algorithm>

#include "loop_state.h"

namespace bantam {

using Kind = JinjaValue::Kind;

void JinjaScope::set(int id, JinjaValue value) {
  for (auto& [key, old] : variables) {
    if (key == id) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(id, std::move(value));
}

JinjaEvaluator::JinjaEvaluator(const JinjaTree& tree, const JinjaValue& context, const JinjaOptions& options)
    : tree_(tree),
      context_(context),
      options_(options),
      work_{options.max_steps, options.max_steps, options.max_output_bytes},
      iterations_left_(options.max_loop_iterations),
      globals_(tree.names.size(), JinjaValue::missing()) {}

JinjaEvaluator::~JinjaEvaluator() {
  for (auto& n : namespaces_) static_cast<JinjaNamespace&>(*n.object()).attributes.clear();
}

JinjaEvaluator::Deeper::Deeper(JinjaEvaluator& e) : evaluator(e) {
  if (e.depth_ >= e.options_.max_depth) {
    jinja_data_fault(str("evaluation nested deeper than ", e.options_.max_depth, " levels (max_depth)"));
  }
  ++e.depth_;
}

Rendered JinjaEvaluator::run() {
  Rendered out;
  out_ = &out;
  execute(tree_.body);
  return out;
}

JinjaEvaluator::Flow JinjaEvaluator::execute(const JinjaBody& body) {
  for (const auto& s : body.statements) {
    const Flow flow = execute(*s);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

JinjaEvaluator::Flow JinjaEvaluator::execute(const JinjaStatement& s) {
  work_.charge(1);
  at_ = s.at;
  switch (s.kind) {
    case JinjaStatementKind::text:
      emit_text(s.text);
      return Flow::on;
    case JinjaStatementKind::output: {
      JinjaValue own;
      const JinjaValue& value = operand(*s.expr, own);
      at_ = s.at;
      emit(value);
      return Flow::on;
    }
    case JinjaStatementKind::choice:
      return choose(s);
    case JinjaStatementKind::loop:
      return loop(s);
    case JinjaStatementKind::set:
      assign(s.target, evaluate(*s.expr));
      return Flow::on;
    case JinjaStatementKind::set_block:
      assign(s.target, captured_through(s));
      return Flow::on;
    case JinjaStatementKind::filter_block:
      emit(captured_through(s));
      return Flow::on;
    case JinjaStatementKind::generation:
      generation(s);
      return Flow::on;
    case JinjaStatementKind::macro: {
      auto* object = new JinjaCallable;
      object->kind = JinjaCallable::Kind::macro;
      object->macro = &s.macro;
      object->scope = scope_;
      assign_name(s.macro.id, JinjaValue(Kind::callable, object));
      return Flow::on;
    }
    case JinjaStatementKind::stop:
      return Flow::stop;
    case JinjaStatementKind::next:
      return Flow::next;
  }
  return Flow::on;
}

JinjaEvaluator::Flow JinjaEvaluator::choose(const JinjaStatement& s) {
  const Deeper deeper(*this);
  for (const auto& [condition, body] : s.branches)
    if (holds(*condition)) return execute(body);
  return execute(s.otherwise);
}

JinjaScope* JinjaEvaluator::new_scope(JinjaScope* parent, bool outlives, JinjaScope& local) {
  JinjaScope* scope = outlives ? &kept_.emplace_back() : &local;
  scope->parent = parent;
  return scope;
}

JinjaEvaluator::Flow JinjaEvaluator::in_new_scope(const JinjaBody& body) {
  const Deeper deeper(*this);
  JinjaScope local, *outer = scope_;
  scope_ = new_scope(outer, body.has_macro, local);
  const Flow flow = execute(body);
  scope_ = outer;
  return flow;
}

JinjaEvaluator::Flow JinjaEvaluator::loop(const JinjaStatement& s) {
  const Deeper deeper(*this);
  JinjaValue source = evaluate(*s.expr);
  at_ = s.expr->at;
  if (!source.is(Kind::sequence)) source = JinjaValue::list(jinja_iterate(source, work_));
  auto* state = new JinjaLoopState(*this, s, std::move(source));
  const JinjaValue handle(Kind::loop, state);
  JinjaScope local, *const outer = scope_;
  bool otherwise = true;  // Jinja's rule: unless a pass went through to its end
  while (state->advance()) {
    at_ = s.at;
    work_.charge(1);
    if (iterations_left_ == 0) {
      jinja_data_fault(str("more than ", options_.max_loop_iterations, " loop iterations (max_loop_iterations)"));
    }
    --iterations_left_;
    local.variables.clear();
    scope_ = new_scope(outer, s.body.has_macro, local);
    if (s.uses_loop) scope_->set(tree_.loop_id, handle);
    assign(s.target, state->current);
    const Flow flow = execute(s.body);
    scope_ = outer;
    if (flow == Flow::stop) break;
    if (flow == Flow::on) otherwise = false;
  }
  state->finish();
  if (otherwise && !s.otherwise.statements.empty()) return in_new_scope(s.otherwise);
  return Flow::on;
}

void JinjaEvaluator::generation(const JinjaStatement& s) {
  const size_t begin = out_->text.size();
  in_new_scope(s.body);
  auto& spans = out_->generation;
  while (!spans.empty() && spans.back().begin >= begin) spans.pop_back();  // blocks inside of this one
  spans.push_back({begin, out_->text.size()});
}

JinjaValue JinjaEvaluator::capture(const JinjaBody& body) {
  Rendered made, *const outer = out_;
  out_ = &made;
  execute(body);
  out_ = outer;
  if (made.generation.empty()) return JinjaValue(std::move(made.text));
  auto* object = new JinjaString;
  object->text = std::move(made.text);
  object->generation = std::move(made.generation);
  return {Kind::string, object};
}

JinjaValue JinjaEvaluator::captured_through(const JinjaStatement& s) {
  const Deeper deeper(*this);
  JinjaScope local, *outer = scope_;
  scope_ = new_scope(outer, s.body.has_macro, local);
  captured_ = capture(s.body);
  scope_ = outer;
  return evaluate(*s.expr);
}

void JinjaEvaluator::emit_text(std::string_view text) {
  work_.charge_text(text.size());
  if (out_->text.size() + text.size() > options_.max_output_bytes) {
    jinja_data_fault(str("more than ", options_.max_output_bytes, " bytes of output (max_output_bytes)"));
  }
  out_->text += text;
}

void JinjaEvaluator::emit(const JinjaValue& v) {
  if (!v.is(Kind::string)) return emit_text(jinja_str(v, work_));
  const size_t begin = out_->text.size();
  emit_text(v.text());
  for (const auto& span : as_string(v).generation) {
    out_->generation.push_back({begin + span.begin, begin + span.end});
  }
}

void JinjaEvaluator::assign_name(int id, const JinjaValue& value) {
  if (scope_ != nullptr) {
    scope_->set(id, value);
  } else {
    globals_[static_cast<size_t>(id)] = value;
  }
}

void JinjaEvaluator::assign(const JinjaTarget& target, const JinjaValue& value) {
  if (!target.attribute.empty()) {
    const JinjaValue owner = lookup(target.id);
    at_ = target.at;
    if (!owner.is(Kind::name_space)) jinja_data_fault("cannot assign attribute on non-namespace object");
    static_cast<JinjaNamespace&>(*owner.object()).set(target.attribute, value);
    return;
  }
  if (target.id >= 0) return assign_name(target.id, value);
  at_ = target.at;
  if (!jinja_iterable(value)) jinja_data_fault(str("cannot unpack non-iterable ", jinja_type(value), " object"));
  const auto items = jinja_iterate(value, work_);
  if (items.size() > target.parts.size()) {
    jinja_data_fault(str("too many values to unpack (expected ", target.parts.size(), ")"));
  }
  if (items.size() < target.parts.size()) {
    jinja_data_fault(str("not enough values to unpack (expected ", target.parts.size(), ", got ", items.size(), ")"));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

const JinjaValue& JinjaEvaluator::lookup(int id) {
  for (JinjaScope* s = scope_; s != nullptr; s = s->parent)
    for (const auto& [key, value] : s->variables)
      if (key == id) return value;
  auto& value = globals_[static_cast<size_t>(id)];
  if (!value.is(Kind::missing)) return value;
  const std::string& name = tree_.names[static_cast<size_t>(id)];
  if (const auto* found = context_.find(name)) {
    value = *found;
  } else if (name == "range" || name == "namespace" || name == "raise_exception" || name == "strftime_now") {
    auto* object = new JinjaCallable;
    object->name = name;
    value = JinjaValue(Kind::callable, object);
  } else {
    value = jinja_undefined_variable(name);
  }
  return value;
}

}  // namespace bantam
