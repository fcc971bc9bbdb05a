// SPDX-License-Identifier: Apache-2.0
#include "stage_json.h"

#include "../../kernels/error.h"
#include "json_file.h"
#include "utf8.h"

namespace bantam {
namespace {

using nlohmann::json;

constexpr size_t kMostContent = 256, kMostGrowth = 64;

[[noreturn]] void fail(const std::string& at, const std::string& what) {
  throw Error(ErrorCode::model, str(at, ": ", what));
}

}  // namespace

std::string stage_type(const json& j, const std::string& at) {
  auto type = json_text(j, "type", at);
  if (!type) fail(at, "no type");
  return *std::move(type);
}

std::string need_text(const json& j, const char* key, const std::string& at) {
  auto text = json_text(j, key, at);
  if (!text) fail(at, str("no ", key));
  return *std::move(text);
}

std::string need_content(const json& j, const char* key, const std::string& at) {
  std::string text = need_text(j, key, at);
  if (text.size() > kMostContent) fail(at, str(key, ": ", text.size(), " bytes, at most ", kMostContent));
  return text;
}

void check_growth(size_t before, size_t now, const std::string& where) {
  if (now > kMostGrowth * (before + 256)) {
    throw Error(ErrorCode::data, str(where, ": makes ", now, " bytes of ", before));
  }
}

bool need_bool(const json& j, const char* key, const std::string& at) {
  const auto value = json_bool(j, key, at);
  if (!value) fail(at, str("no ", key));
  return *value;
}

std::string need_character(const json& j, const char* key, const std::string& at) {
  std::string text = need_text(j, key, at);
  if (text.empty() || utf8_sequence(text) != text.size()) {
    fail(at, str(key, ": expected one character, found '", printable(text), "'"));
  }
  return text;
}

StagePattern read_pattern(const json& j, const std::string& at) {
  const json* pattern = json_find(j, "pattern", at);
  if (pattern == nullptr || !pattern->is_object()) fail(at, "pattern: expected {\"String\": ...} or {\"Regex\": ...}");
  if (auto regex = json_text(*pattern, "Regex", at)) return {*std::move(regex), true};
  auto text = json_text(*pattern, "String", at);
  if (!text) fail(at, "pattern: expected {\"String\": ...} or {\"Regex\": ...}");
  if (text->empty()) fail(at, "pattern: an empty String");
  return {*std::move(text), false};
}

void for_each_part(const json* j, const char* list_key, const std::string& at,
                   const std::function<void(const json&, const std::string&)>& found) {
  if (j == nullptr) return;
  if (stage_type(*j, at) != "Sequence") return found(*j, at);
  const json* list = json_find(*j, list_key, at);
  if (list == nullptr || !list->is_array()) fail(at, str(list_key, ": expected a list"));
  for (size_t i = 0; i < list->size(); ++i) {
    for_each_part(&(*list)[i], list_key, str(at, ".", list_key, "[", i, "]"), found);
  }
}

}  // namespace bantam
