// SPDX-License-Identifier: Apache-2.0
// A parsed template.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "builtins.h"
#include "ops.h"

namespace bantam {

struct JinjaExpr;
using JinjaExprPtr = std::unique_ptr<JinjaExpr>;

enum class JinjaExprKind : uint8_t {
  constant,     // value
  name,         // id
  list,         // parts
  tuple,        // parts
  dict,         // parts: key, value, key, value, ...
  attribute,    // parts[0] . value
  item,         // parts[0] [ parts[1] ]
  slice,        // parts[0] [ parts[1] : parts[2] : parts[3] ], each may be null
  call,         // parts[0] ( parts[1], ..., named )
  filter,       // parts[0] | filter ( parts[1], ..., named )
  test,         // parts[0] is test ( parts[1], ... )
  positive,     // + parts[0]
  negative,     // - parts[0]
  logic_not,    // parts[0]
  logic_and,    // parts[0], parts[1]
  logic_or,     // parts[0], parts[1]
  arithmetic,   // parts[0] op parts[1]
  concat,       // parts, as texts
  compare,      // parts[0] comparisons[0] parts[1] comparisons[1] ...
  conditional,  // parts[0] if parts[1] else parts[2], which may be null
  captured,     // what the body of a filter block or a set block made
};

struct JinjaExpr {
  JinjaExprKind kind;
  JinjaOperator op = JinjaOperator::add;
  uint16_t depth = 1;
  uint32_t at = 0;  ///< offset in the source
  int id = -1;
  JinjaValue value;
  const JinjaFilter* filter = nullptr;
  const JinjaTest* test = nullptr;
  std::vector<JinjaExprPtr> parts;
  std::vector<std::pair<std::string, JinjaExprPtr>> named;
  std::vector<JinjaComparison> comparisons;
};

struct JinjaTarget {
  uint32_t at = 0;
  int id = -1;                     ///< of a name; -1: a tuple
  std::string attribute;           ///< of the namespace `id`; empty: the name itself
  std::vector<JinjaTarget> parts;  ///< of a tuple
};

struct JinjaStatement;
struct JinjaBody {
  std::vector<std::unique_ptr<JinjaStatement>> statements;
  bool has_macro = false;  ///< somewhere inside: its scope has to outlive it
};

struct JinjaMacro {
  int id = -1;
  std::string name;
  std::vector<std::pair<int, std::string>> parameters;
  std::vector<JinjaExprPtr> defaults;  ///< of the last parameters
  JinjaBody body;
};

enum class JinjaStatementKind : uint8_t {
  text,          // text
  output,        // expr
  choice,        // branches, otherwise
  loop,          // for target in expr if test: body, else otherwise
  set,           // target = expr
  set_block,     // target = body through expr (captured)
  filter_block,  // body through expr (captured)
  generation,    // body
  macro,         // macro
  stop,          // break
  next,          // continue
};

struct JinjaStatement {
  JinjaStatementKind kind;
  uint32_t at = 0;
  bool uses_loop = false;  ///< the body of a loop reads `loop`
  std::string_view text;
  JinjaExprPtr expr, test;
  JinjaTarget target;
  std::vector<std::pair<JinjaExprPtr, JinjaBody>> branches;
  JinjaBody body, otherwise;
  JinjaMacro macro;
};

struct JinjaTree {
  std::string source;  ///< normalised; texts point into it
  std::vector<std::string> names;
  JinjaBody body;
  int loop_id = -1;  ///< of `loop`
  bool has_generation = false;
};

}  // namespace bantam
