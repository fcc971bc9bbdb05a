// SPDX-License-Identifier: Apache-2.0
// The content of a message: text, or parts of it.
#pragma once
#include "conversation_path.h"

namespace bantam {

struct MessageContent {
  JinjaValue value;  ///< text; a list of {"type": "text", "text"} where there are several; none where there is nothing
  std::string reasoning;  ///< of parts that say so
  bool has_reasoning = false;
  JinjaValue::List tool_calls;  ///< of parts that are calls
};

/// `tool`: what a tool said, which may be any JSON; what is not text becomes JSON text. Error(data) with the path;
/// parts that are no text (images, audio, video, files) are refused by name. Null is nothing.
MessageContent read_content(const JinjaValue& content, bool tool, const RowPath& path);

}  // namespace bantam
