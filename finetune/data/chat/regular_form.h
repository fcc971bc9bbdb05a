// SPDX-License-Identifier: Apache-2.0
// The plain form of a template: system, user and assistant texts with fixed text between them. Conversations that are
// written so need one rendering only: the places follow from a comparison of all its bytes.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "turn_finder.h"

namespace bantam {

class RegularForm {
 public:
  /// Learned from renderings of conversations of ours, with the places that TurnFinder has for them.
  static RegularForm learn(const ChatTemplate& chat_template, const ControlText& control, const TemplateFacts& facts);

  /// One per message; none: the conversation, or what the template made of it, is not of this form.
  std::optional<std::vector<TurnPlace>> places(const Conversation& conversation, const std::string& text) const;

 private:
  enum Role : uint8_t { kSystem, kUser, kAssistant, kStart };
  static std::optional<Role> role_of(const JinjaValue& message, const std::string** content);
  void learn_from(const ChatTemplate& chat_template, const ControlText& control, const TemplateFacts& facts,
                  const std::vector<Role>& roles);

  struct Link {  // from the text of a message to that of the next
    std::string text;
    size_t body_end = 0, marker = 0, end = 0;  // of the earlier turn
    size_t begin = 0;                          // of the later turn's answer
    std::string rest;                          // an answer that starts so starts elsewhere
    bool clear = true;                         // the same in all that was learned
    bool operator==(const Link&) const = default;
  };
  static void set(std::optional<Link>& place, Link link);

  std::array<std::array<std::array<std::optional<Link>, 2>, 3>, 4> links_;  // earlier, later, later is the last
  std::array<std::optional<Link>, 3> ends_;
};

}  // namespace bantam
