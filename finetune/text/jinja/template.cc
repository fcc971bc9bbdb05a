// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "evaluator.h"
#include "jinja.h"
#include "parser.h"

namespace bantam {
namespace {

// "name:line:column", both from 1.
std::string place(const std::string& name, std::string_view source, size_t at) {
  at = std::min(at, source.size());
  const auto before = source.substr(0, at);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t column = at - (before.rfind('\n') + 1) + 1;
  return str(name, ":", line, ":", column);
}

}  // namespace

JinjaTemplate::JinjaTemplate(std::shared_ptr<const JinjaTree> tree, std::string name)
    : tree_(std::move(tree)), name_(std::move(name)) {}

JinjaTemplate JinjaTemplate::parse(const std::string& source, std::string name) {
  try {
    auto tree = jinja_parse(source);
    return JinjaTemplate(std::move(tree), std::move(name));
  } catch (const JinjaSyntaxError& e) {
    throw Error(ErrorCode::model, str(place(name, jinja_normalize(source), e.at), ": ", e.message));
  }
}

Rendered JinjaTemplate::render(const JinjaValue& context, const JinjaOptions& options) const {
  if (!context.is(JinjaValue::Kind::dict)) {
    throw Error(ErrorCode::internal, str(name_, ": the context of a template is a dict"));
  }
  JinjaEvaluator evaluator(*tree_, context, options);
  try {
    return evaluator.run();
  } catch (const JinjaFault& fault) {
    throw Error(fault.code(), str(where(evaluator.at()), ": ", fault.what()), fault.hint());
  }
}

bool JinjaTemplate::has_generation() const {
  return tree_->has_generation;
}

std::string JinjaTemplate::where(size_t at) const {
  return place(name_, tree_->source, at);
}

}  // namespace bantam
