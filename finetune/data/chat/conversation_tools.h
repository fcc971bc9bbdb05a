// SPDX-License-Identifier: Apache-2.0
// Tool calls and tool schemas in the one form that templates document: {"type": "function", "function": {...}} with
// arguments as an object.
#pragma once
#include "conversation_path.h"

namespace bantam {

/// One call, or a list of them, or JSON text of either, appended: each in OpenAI's form, or a bare {"name",
/// "arguments"}. Arguments may be JSON text. Error(data) with the path.
void append_tool_calls(const JinjaValue& calls, const RowPath& path, JinjaValue::List& out);
/// Of a list of schemas, or JSON text of one; bare ones are wrapped. None where the list is empty.
JinjaValue read_tools(const JinjaValue& tools, const RowPath& path);

}  // namespace bantam
