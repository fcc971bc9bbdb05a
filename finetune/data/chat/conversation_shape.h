// SPDX-License-Identifier: Apache-2.0
// Which fields of a row hold the conversation.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "../dataset_spec.h"

namespace bantam {

/// spec.field_messages, else the first of messages, conversations, conversation, dialog that holds a list (or JSON text
/// of one); empty: none does. A field that the spec names is taken whatever it holds.
std::string messages_field(const nlohmann::ordered_json& row, const DatasetSpec& spec);
/// Prompt and completion are lists of messages.
bool is_conversational_pair(const nlohmann::ordered_json& row, const DatasetSpec& spec);
/// Error(data) for a row where the conversation should be and is not.
[[noreturn]] void no_messages(const nlohmann::ordered_json& row, const DatasetSpec& spec);
/// Error(data) for a row that is no object.
void check_object(const nlohmann::ordered_json& row);
/// Error(data) for a row that comes with images, audio or video.
void check_text_only(const nlohmann::ordered_json& row);
/// "id, text": the first fields of a row.
std::string fields_text(const nlohmann::ordered_json& row);

}  // namespace bantam
