// SPDX-License-Identifier: Apache-2.0
// Rows of chat data, in the shapes that people have them, as one conversation.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../text/jinja/value.h"
#include "../dataset_spec.h"

namespace bantam {

struct Turn {
  std::string role;             ///< as the template sees it
  std::optional<bool> train;    ///< of the message's own key; none: by roles_to_train
  std::optional<float> weight;  ///< of the message's own key, >= 0; 0 is not trained
};

/// What a template is rendered with, and what is known of each message.
struct Conversation {
  JinjaValue messages;            ///< a list of dicts {"role", "content", ...}; everything else of a message is kept
  JinjaValue tools;               ///< none: no tools
  JinjaValue::Entries variables;  ///< chat_template_kwargs of the row
  std::vector<Turn> turns;        ///< one per message
};

/// Error(data) with a path such as messages[1].content, what was found and what is expected; the caller adds file:line.
Conversation read_chat(const nlohmann::ordered_json& row, const DatasetSpec& spec);
/// instruction, input, output, and system where the row has it; history as pairs.
Conversation read_alpaca(const nlohmann::ordered_json& row, const DatasetSpec& spec);

/// By the fields of a row. Error(data): no known shape, with the fields found and what each type needs.
DatasetType detect_type(const nlohmann::ordered_json& row, const DatasetSpec& spec);

}  // namespace bantam
