// SPDX-License-Identifier: Apache-2.0
// JSON files of a model folder, read with limits, and fields of them with words for what is wrong.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace bantam {

/// Offset of the first bracket that opens more than `most` levels; npos: none. Parsers and destructors recurse.
size_t json_too_deep(std::string_view text, int most);

/// The whole file. Error(model) when missing or larger than `most_bytes`.
std::string read_text_file(const std::filesystem::path& path, size_t most_bytes = size_t{512} << 20);
/// Error(model) "file:byte: what" for what is not JSON.
nlohmann::json parse_json(std::string_view text, const std::string& where);

// Fields of an object; absent and null are the same. Error(model) naming `where`, the key and what was found.
const nlohmann::json* json_find(const nlohmann::json& object, const char* key, const std::string& where);
std::optional<bool> json_bool(const nlohmann::json& object, const char* key, const std::string& where);
std::optional<std::string> json_text(const nlohmann::json& object, const char* key, const std::string& where);
std::optional<int64_t> json_integer(const nlohmann::json& object, const char* key, const std::string& where);

}  // namespace bantam
