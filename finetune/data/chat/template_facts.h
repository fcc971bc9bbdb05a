// SPDX-License-Identifier: Apache-2.0
// What is known of a template before any row, from renderings of conversations of ours.
#pragma once
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "../../text/chat_template.h"
#include "control_text.h"
#include "conversation.h"

namespace bantam {

/// Whether turns of this role are what the model says.
inline bool says_model(std::string_view role) {
  return role == "assistant" || role == "model";
}

/// What is known of a template before any row.
struct TemplateFacts {
  std::string head;                         ///< what add_generation_prompt adds
  size_t core = 0;                          ///< bytes of it that stand before every answer
  std::string eos;                          ///< may be empty
  std::unordered_set<std::string> markers;  ///< control tokens that end a turn
  std::unordered_set<std::string> doubled;  ///< those of them that may stand behind another one
  std::string line_ends;                    ///< behind the marker of an answer
  std::string trailer;                      ///< white space at the end of every rendering, behind a head too
  std::vector<std::string> openers;         ///< control tokens that start a turn
};

/// Where `text` can be cut at or before `length`: behind a control token or a line end.
size_t cut_before(std::string_view text, size_t length, const ControlText& control);

/// What a template shows on conversations of ours, with a tool or without (there may be a template for each). A
/// template that refuses them has less to show.
TemplateFacts learn_facts(const ChatTemplate& chat_template, const ControlText& control, const std::string& eos,
                          bool with_tools);

/// A conversation of ours: messages of these roles (0: system, 1: user, 2: assistant), each with its sample_text().
Conversation sample_conversation(const std::vector<int>& roles, bool with_tools);
std::string_view sample_text(size_t message);
const char* sample_role(int role);

}  // namespace bantam
