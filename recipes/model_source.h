// SPDX-License-Identifier: Apache-2.0
// What MODEL|RUN on a command line stands for: a run folder knows its base, adapter, template and data.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../finetune/text/chat_template.h"
#include "../finetune/text/tokenizer.h"
#include "recipe.h"

namespace bantam {

struct ModelSource {
  std::filesystem::path model;
  std::filesystem::path adapter;                       ///< empty: none
  std::optional<Recipe> recipe;                        ///< of a run folder
  std::string chat_template = Recipe().chat_template;  ///< the run's, as the recipe key
  bool chat = false;                                   ///< a run that was trained on chat rows only
};

/// `needs_adapter`: Error(model) for a run that has neither an adapter nor a checkpoint yet. Error(usage) for an
/// adapter folder, which stands with --adapter.
ModelSource find_source(const std::filesystem::path& model_or_run, bool needs_adapter);

struct ChatPrompt {
  std::string system;  ///< empty: none
  std::string user;
};
/// The text that a chat model is asked with: the conversation so far and the head of an answer. What inference servers
/// that use the model's template send.
std::string chat_prompt(const ChatTemplate& chat_template, const ChatPrompt& prompt);
/// Its ids, as in training: control tokens only where the template wrote them.
std::vector<int32_t> chat_prompt_ids(const std::shared_ptr<const ChatTemplate>& chat_template,
                                     const std::shared_ptr<const Tokenizer>& tokenizer, const ChatPrompt& prompt);

/// Tokens that end an answer: EOS, what the template puts behind an answer, and those of generation_config.json.
/// `chat_template` may be null.
std::vector<int32_t> stop_ids(const std::filesystem::path& model, const std::shared_ptr<const Tokenizer>& tokenizer,
                              const std::shared_ptr<const ChatTemplate>& chat_template);

}  // namespace bantam
