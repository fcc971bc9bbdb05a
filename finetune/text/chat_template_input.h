// SPDX-License-Identifier: Apache-2.0
// The variables of a rendering, in the form that the template takes; found out by rendering a small conversation.
#pragma once
#include "chat_template.h"

namespace bantam {

/// Renders conversations whose texts are known, as llama.cpp does: what does not come out was not taken.
TemplateWants try_out(const JinjaTemplate& parsed, const JinjaValue::Entries& special_tokens);

/// A dict. Messages are changed only where `wants` says so. Error(data) for a part that is not text, where one text is
/// wanted.
JinjaValue template_context(const ChatInput& input, const JinjaValue::Entries& special_tokens,
                            const TemplateWants& wants);

}  // namespace bantam
