// SPDX-License-Identifier: Apache-2.0
// The `loop` of a loop's body, and the items that are still to come. Items that a condition drops are looked at only
// when they are due, as in Jinja, so that the condition sees what the body has changed.
#pragma once
#include "evaluator.h"

namespace bantam {

struct JinjaLoopState final : JinjaLoop {
  JinjaLoopState(JinjaEvaluator& evaluator_, const JinjaStatement& statement_, JinjaValue source_);

  /// To the next item; false at the end.
  bool advance();
  /// The loop is left: the values stay readable, nothing is evaluated any more.
  void finish() { evaluator = nullptr; }
  JinjaValue attribute(std::string_view name) override;

  JinjaValue current;

 private:
  bool next_item(JinjaValue& item);
  bool peek();
  int64_t length();

  JinjaEvaluator* evaluator;
  const JinjaStatement& statement;
  JinjaScope* outer;
  JinjaValue source;
  size_t at = 0;
  bool tested = false;  ///< the source holds only what the condition keeps
  int64_t index0 = -1, known_length = -1;
  JinjaValue before, after = JinjaValue::missing();
};

}  // namespace bantam
