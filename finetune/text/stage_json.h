// SPDX-License-Identifier: Apache-2.0
// What the readers of the stages in tokenizer.json share. `at` is the file and the place in it, for messages.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace bantam {

/// The "type" of a part.
std::string stage_type(const nlohmann::json& j, const std::string& at);
std::string need_text(const nlohmann::json& j, const char* key, const std::string& at);
/// A text that is put in for another: of 256 bytes at most, so that no file makes much of little.
std::string need_content(const nlohmann::json& j, const char* key, const std::string& at);
/// Error(data) naming `where` when steps have made `now` bytes of `before`, which is out of all proportion.
void check_growth(size_t before, size_t now, const std::string& where);
bool need_bool(const nlohmann::json& j, const char* key, const std::string& at);
/// A text of exactly one character.
std::string need_character(const nlohmann::json& j, const char* key, const std::string& at);

/// "pattern": {"String": ...} (not empty) or {"Regex": ...}.
struct StagePattern {
  std::string text;
  bool regex = false;
};
StagePattern read_pattern(const nlohmann::json& j, const std::string& at);

/// Calls `found` for the part, or for each member when it is a Sequence (whose list is under `list_key`), nested ones
/// too. Nothing when `j` is null.
void for_each_part(const nlohmann::json* j, const char* list_key, const std::string& at,
                   const std::function<void(const nlohmann::json&, const std::string&)>& found);

}  // namespace bantam
