// SPDX-License-Identifier: Apache-2.0
// The chat template of a model: found among its files, rendered with its special tokens.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "jinja/jinja.h"

namespace bantam {

/// What a conversation is rendered from.
struct ChatInput {
  JinjaValue messages;                 ///< a list of {"role": ..., "content": ...}
  JinjaValue tools;                    ///< a list of function schemas; none: no tools
  bool add_generation_prompt = false;  ///< end with the head of an answer
  JinjaValue::Entries variables;       ///< further ones, e.g. {"enable_thinking", false}; they win over the rest
};

/// Immutable; safe to use from several threads.
class ChatTemplate {
 public:
  /// Of a model folder (chat_template.jinja, else chat_template in tokenizer_config.json, else in chat_template.json)
  /// or a .gguf file. Error(model) when there is none, or when it does not parse; no other template is tried then.
  static ChatTemplate load(const std::filesystem::path& model);
  /// Of a text, with the special tokens of `model` (a folder, a .gguf file, or empty: none).
  static ChatTemplate from_text(const std::string& source, std::string name, const std::filesystem::path& model = {});

  /// Error(data) with the template's own message where it refuses the conversation. See JinjaTemplate::render.
  Rendered render(const ChatInput& input, const JinjaOptions& options = {}) const;

  /// The template that is used for a conversation; several are there where a model has one for tools.
  const JinjaTemplate& select(bool with_tools) const;
  /// Texts of bos_token, eos_token, ...: the variables of every rendering.
  const JinjaValue::Entries& special_tokens() const { return special_tokens_; }

 private:
  std::vector<std::pair<std::string, JinjaTemplate>> templates_;  ///< by name; a single one is "default"
  JinjaValue::Entries special_tokens_;
  std::string where_;
};

}  // namespace bantam
