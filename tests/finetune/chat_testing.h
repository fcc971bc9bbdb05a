// SPDX-License-Identifier: Apache-2.0
// Conversations and their masks in a form that tests can show.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/chat/answer_spans.h"
#include "text_testing.h"

namespace bantam::testing {

inline Conversation conversation_of(const nlohmann::ordered_json& messages,
                                    const nlohmann::ordered_json& tools = nullptr,
                                    const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) {
  Conversation out;
  out.messages = JinjaValue::from_json(messages);
  out.tools = JinjaValue::from_json(tools);
  for (const auto& [key, value] : variables.items()) out.variables.emplace_back(key, JinjaValue::from_json(value));
  for (const auto& message : messages) out.turns.push_back({message.at("role"), {}, {}});
  return out;
}

/// {"user", "Hi"}, {"assistant", "Hello"}, ...
inline Conversation chat(const std::vector<std::pair<std::string, std::string>>& messages) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [role, content] : messages) list.push_back({{"role", role}, {"content", content}});
  return conversation_of(list);
}

inline std::shared_ptr<const ChatTemplate> template_of(const std::string& source, const std::string& eos = "",
                                                       const std::string& bos = "") {
  TempDir dir;
  nlohmann::json config = nlohmann::json::object();
  if (!eos.empty()) config["eos_token"] = eos;
  if (!bos.empty()) config["bos_token"] = bos;
  write_file(dir / "tokenizer_config.json", config.dump());
  return std::make_shared<const ChatTemplate>(ChatTemplate::from_text(source, "template", dir.path()));
}

/// The text with what is trained between [ and ], plain texts of control tokens between ( and ).
inline std::string shown(const AnsweredText& text) {
  std::string out;
  for (size_t i = 0; i <= text.text.size(); ++i) {
    for (const auto& s : text.plain)
      if (s.end == i) out += ")";
    for (const auto& s : text.trained)
      if (s.bytes.end == i) out += "]";
    for (const auto& s : text.trained)
      if (s.bytes.begin == i) out += "[";
    for (const auto& s : text.plain)
      if (s.begin == i) out += "(";
    if (i < text.text.size()) out += text.text[i];
  }
  return out;
}

/// Of the templates in the tests.
inline const std::vector<std::string> kControl = {"<s>",    "</s>",    "<|s|>",   "<|e|>",      "<|user|>",
                                                  "[INST]", "[/INST]", "[CALLS]", "<|answer|>", "<|over|>"};

inline const std::vector<std::pair<std::string, std::string>> kTwo = {
    {"user", "Hi"}, {"assistant", "Hello."}, {"user", "Bye"}, {"assistant", "Goodbye."}};

}  // namespace bantam::testing
