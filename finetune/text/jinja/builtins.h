// SPDX-License-Identifier: Apache-2.0
// Filters and tests by name.
#pragma once
#include <string_view>
#include <vector>

#include "object.h"

namespace bantam {

struct JinjaFilter {
  std::string_view name;
  JinjaValue (*call)(const JinjaValue& subject, JinjaArguments& arguments, JinjaWork& work);
  std::vector<std::string_view> parameters;  ///< besides the subject
  size_t required = 0;                       ///< that many must be given
  bool any = false;                          ///< what follows is handed on: map, select, reject and their kin
};
/// Null: unknown.
const JinjaFilter* jinja_find_filter(std::string_view name);

struct JinjaTest {
  std::string_view name;
  bool (*call)(const JinjaValue& subject, const JinjaValue& argument, JinjaWork& work);
  int arguments = 0;
};
const JinjaTest* jinja_find_test(std::string_view name);
/// Checks the number of arguments first.
bool jinja_call_test(const JinjaTest& test, const JinjaValue& subject, const JinjaValue::List& arguments,
                     JinjaWork& work);

}  // namespace bantam
