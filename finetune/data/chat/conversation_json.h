// SPDX-License-Identifier: Apache-2.0
// JSON inside of the texts of a row, and parts of a row as values.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "conversation_path.h"

namespace bantam {

/// Error(data) with the path: not JSON, deeper than 64 levels, whole numbers above 64 bits.
JinjaValue parse_row_json(std::string_view text, const RowPath& path);
/// Of a parsed row's part. Error(data) with the path.
JinjaValue row_value(const nlohmann::ordered_json& json, const RowPath& path);

}  // namespace bantam
