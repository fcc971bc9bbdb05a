// SPDX-License-Identifier: Apache-2.0
// Methods of texts, lists and dicts.
#pragma once
#include <string_view>

#include "object.h"

namespace bantam {

enum class MethodKind {
  none,         ///< the type has no such attribute
  supported,    ///< jinja_call_method knows it
  unsafe,       ///< changes its object, which the sandbox refuses
  unsupported,  ///< Python has it, this evaluator does not
};
/// `name` becomes static text where it is known.
MethodKind jinja_find_method(const JinjaValue& receiver, std::string_view& name);
/// Of no type a method that could be called: unknown wherever it stands.
bool jinja_no_method(std::string_view name);
/// A supported one.
JinjaValue jinja_call_method(const JinjaValue& receiver, std::string_view name, JinjaArguments& arguments,
                             JinjaWork& work);

}  // namespace bantam
