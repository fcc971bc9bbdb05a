// SPDX-License-Identifier: Apache-2.0
// The chat template of a model: found among its files, rendered with its special tokens.
#pragma once
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/jinja.h"
#include "tokenizer.h"

namespace bantam {

/// What a conversation is rendered from.
struct ChatInput {
  JinjaValue messages;                 ///< a list of {"role": ..., "content": ...}
  JinjaValue tools;                    ///< a list of function schemas; none: no tools
  bool add_generation_prompt = false;  ///< end with the head of an answer
  JinjaValue::Entries variables;       ///< further ones, e.g. {"enable_thinking", false}; they win over the rest
};

/// In which of two forms a template takes what may be said in both.
struct TemplateWants {
  bool parts = false;              ///< content as a list of parts; otherwise as one text
  bool arguments_as_text = false;  ///< those of tool calls as JSON text; otherwise as an object
  bool empty_content = false;      ///< empty text where a call has no content; otherwise null, as the row has it
};

/// Immutable; safe to use from several threads.
class ChatTemplate {
 public:
  static constexpr const char* kTokenizerDefault = "tokenizer_default";  ///< the setting for the model's own
  /// Of a model folder (chat_template.jinja, else chat_template in tokenizer_config.json, else in chat_template.json)
  /// or a .gguf file. Error(model) when there is none, or when it does not parse; no other template is tried then.
  static ChatTemplate load(const std::filesystem::path& model);
  /// The same; none where there is none.
  static std::optional<ChatTemplate> find(const std::filesystem::path& model);
  /// Of a text, with the special tokens of `model` (a folder, a .gguf file, or empty: none).
  static ChatTemplate from_text(const std::string& source, std::string name, const std::filesystem::path& model = {});

  /// One of named_templates(), with the special tokens of `model`. Error(usage) for an unknown name, Error(model) where
  /// the template ends answers with eos_token and the model names none.
  static ChatTemplate named(std::string_view name, const std::filesystem::path& model = {});
  /// The same with the BOS and EOS of a tokenizer.
  static ChatTemplate named(std::string_view name, const Tokenizer& tokenizer);
  /// By the recipe's chat_template: tokenizer_default (that of the model), a name, or the path of a .jinja file.
  static ChatTemplate resolve(const std::string& setting, const std::filesystem::path& model);

  /// Error(data) with the template's own message where it refuses the conversation. See JinjaTemplate::render.
  /// Where the template wants it so, content in several text parts is joined by line breaks, arguments of tool calls
  /// become JSON text, and null content becomes empty text, as servers do it; tried out when the template is loaded.
  Rendered render(const ChatInput& input, const JinjaOptions& options = {}) const;

  /// The template that is used for a conversation; several are there where a model has one for tools.
  const JinjaTemplate& select(bool with_tools) const;
  /// Its text, as it stands in the file.
  const std::string& source(bool with_tools) const;
  /// What was asked for: tokenizer_default, a name, a path.
  const std::string& name() const { return name_; }
  /// Of all texts and special tokens, and of today() where a text asks for it; for cache keys.
  uint64_t fingerprint() const;
  /// Whether a text asks for the date (strftime_now).
  bool uses_date() const;
  /// The date of all renderings whose options have no clock; without it each asks the clock. Rows that are prepared
  /// twice are the same then.
  void set_today(const std::tm& today) { today_ = today; }
  const std::optional<std::tm>& today() const { return today_; }
  /// Texts of bos_token, eos_token, ...: the variables of every rendering.
  const JinjaValue::Entries& special_tokens() const { return special_tokens_; }

 private:
  struct Entry {
    std::string name;  ///< a single one is "default"
    std::string source;
    JinjaTemplate parsed;
    TemplateWants wants;
  };
  static ChatTemplate named(std::string_view name, JinjaValue::Entries tokens, const std::string& owner);
  void add(std::string name, std::string source, std::string place);
  const Entry& entry(bool with_tools) const;

  std::vector<Entry> templates_;
  JinjaValue::Entries special_tokens_;
  std::string where_, name_;
  std::optional<std::tm> today_;
};

}  // namespace bantam
