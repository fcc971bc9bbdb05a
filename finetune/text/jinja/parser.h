// SPDX-License-Identifier: Apache-2.0
// Tokens to a tree, by Jinja's grammar. What the evaluator does not have is refused here, by name.
#pragma once
#include <memory>
#include <string>

#include "ast.h"
#include "lexer.h"

namespace bantam {

/// Throws JinjaSyntaxError.
std::unique_ptr<const JinjaTree> jinja_parse(std::string source);

/// The functions that are there without being defined.
constexpr std::string_view kJinjaGlobals[] = {"range", "namespace", "raise_exception", "strftime_now"};

}  // namespace bantam
