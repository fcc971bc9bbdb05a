// SPDX-License-Identifier: Apache-2.0
// The Jinja that chat templates use, byte for byte as transformers renders it (Jinja2's immutable sandbox, trim_blocks,
// lstrip_blocks, break and continue, {% generation %}, tojson as json.dumps(ensure_ascii=False)). What is not part of
// it is refused by name, where possible when the template is parsed.
#pragma once
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "value.h"

namespace bantam {

/// What one rendering may cost. All limits are counts, so that the same input always ends the same.
struct JinjaOptions {
  size_t max_output_bytes = size_t{64} << 20;  ///< of the output, and of every text on the way to it
  uint64_t max_loop_iterations = 1'000'000;    ///< of all loops together
  uint64_t max_steps = 100'000'000;            ///< evaluated nodes; work on long texts and lists counts by size
  int max_depth = 1000;                        ///< of nested evaluation: about 1 KiB of stack each
  /// What strftime_now reads; only year, month, day, hour, minute and second count. Empty: the local time.
  std::function<std::tm()> clock;
};

struct JinjaTree;
/// Bytes of the output, from begin to before end.
struct JinjaSpan {
  size_t begin = 0, end = 0;
  bool operator==(const JinjaSpan&) const = default;
};

struct Rendered {
  std::string text;
  /// What stood inside of {% generation %}, in order, without overlaps. A block whose text a macro or a set block makes
  /// counts where that text is printed as it is; where a filter or an operator changes it first, it has no span.
  std::vector<JinjaSpan> generation;
};

/// Immutable; safe to render from several threads.
class JinjaTemplate {
 public:
  /// Error(model) "name:line:column: what"; columns count bytes from 1.
  static JinjaTemplate parse(const std::string& source, std::string name);

  /// `context`: a dict, whose keys are the variables. Errors carry "name:line:column: ". Error(data): what Jinja and
  /// Python raise (their words), what the template itself raises (its message), limits. Error(model): what this
  /// evaluator does not have.
  Rendered render(const JinjaValue& context, const JinjaOptions& options = {}) const;

  const std::string& name() const { return name_; }
  /// Whether the template marks what the model is to say.
  bool has_generation() const;

 private:
  JinjaTemplate(std::shared_ptr<const JinjaTree> tree, std::string name);
  std::string where(size_t at) const;

  std::shared_ptr<const JinjaTree> tree_;
  std::string name_;
};

}  // namespace bantam
