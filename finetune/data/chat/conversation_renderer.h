// SPDX-License-Identifier: Apache-2.0
// One conversation through its template, whole and in parts, with marks in its texts and without.
#pragma once
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../../text/chat_template.h"
#include "text_marks.h"

namespace bantam {

/// One conversation, rendered as often as needed, within a limit.
class ConversationRenderer {
 public:
  /// `trailer`: taken from the ends of parts.
  ConversationRenderer(const ChatTemplate& chat_template, const Conversation& conversation, std::string trailer = {});
  ConversationRenderer(const ConversationRenderer&) = delete;

  /// The first `count` messages. Errors of the template are thrown.
  Rendered render(const JinjaValue& messages, bool prompt);
  Rendered render(const JinjaValue& messages, const JinjaValue& tools, JinjaValue::Entries variables, bool prompt);
  /// None: the template refuses.
  std::optional<std::string> part(size_t count, bool prompt);
  std::optional<std::string> of(const JinjaValue& messages, bool prompt = false);
  /// Marks of the messages from `first` to before `last` among the first `count`, where they change nothing else:
  /// without them the rendering is `plain`, with the trailer or without.
  std::optional<std::vector<Mark>> marks(size_t count, bool prompt, size_t first, size_t last, std::string_view plain,
                                         const MarkAlphabet& alphabet, bool names = false);
  const Conversation& conversation() const { return conversation_; }
  /// Those of the row, less what is asked for here.
  const JinjaValue::Entries& variables() const { return variables_; }
  size_t size() const { return conversation_.messages.items().size(); }

 private:
  const ChatTemplate& template_;
  const Conversation& conversation_;
  JinjaValue::Entries variables_;
  JinjaOptions options_;
  std::string trailer_;
  std::optional<std::tm> now_;  // the same for all renderings of a conversation
  size_t renderings_ = 0, bytes_ = 0;
};

}  // namespace bantam
