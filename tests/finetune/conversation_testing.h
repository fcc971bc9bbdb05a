// SPDX-License-Identifier: Apache-2.0
// Conversations as JSON text, and what reading a row says.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "finetune/data/chat/conversation.h"
#include "kernels/error.h"

namespace bantam::testing {

inline std::string json_text(const JinjaValue& v) {
  return json_dumps(v);
}

/// Empty: nothing is wrong with the row.
inline std::string chat_error(const std::string& row, const DatasetSpec& spec = {}) {
  try {
    read_chat(nlohmann::ordered_json::parse(row), spec);
  } catch (const Error& e) {
    return e.code() == ErrorCode::data ? e.what() : str("code ", static_cast<int>(e.code()), ": ", e.what());
  }
  return "";
}

inline std::string chat_hint(const std::string& row, const DatasetSpec& spec = {}) {
  try {
    read_chat(nlohmann::ordered_json::parse(row), spec);
  } catch (const Error& e) {
    return e.hint();
  }
  return "";
}

}  // namespace bantam::testing
