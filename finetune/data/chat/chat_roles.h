// SPDX-License-Identifier: Apache-2.0
// Names of speakers: the data's, and what templates call them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "../dataset_spec.h"
#include "conversation_path.h"

namespace bantam {

/// A turn whose text is the call itself: {"name": ..., "arguments": ...}.
inline constexpr std::string_view kFunctionCallRole = "function_call";

/// The template's name of a usual one in ShareGPT data (human, gpt, observation, ...), as Axolotl, LLaMA-Factory and
/// Unsloth have it; names that templates use stand for themselves.
std::optional<std::string_view> usual_role(std::string_view name);

/// By spec.roles, then, for `foreign` names (from/value), by the usual ones. Error(data): a foreign name that neither
/// knows. kFunctionCallRole stays what it is.
std::string_view map_role(const std::string& name, bool foreign, const DatasetSpec& spec, const RowPath& path);

/// What a tool said, rather than a person: its content may be an object.
bool is_tool_role(std::string_view role);

}  // namespace bantam
