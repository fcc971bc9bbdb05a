// SPDX-License-Identifier: Apache-2.0
#include "json_file.h"

#include <fstream>
#include <limits>

#include "../../kernels/error.h"
#include "utf8.h"

namespace bantam {
namespace {

constexpr int kMostLevels = 64;

[[noreturn]] void wrong(const std::string& where, const char* key, const nlohmann::json& found, const char* expected) {
  throw Error(ErrorCode::model, str(where, ": ", key, ": expected ", expected, ", found ", found.type_name()));
}

}  // namespace

size_t json_too_deep(std::string_view text, int most) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > most) return i;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::string_view::npos;
}

std::string read_text_file(const std::filesystem::path& path, size_t most_bytes) {
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) throw Error(ErrorCode::model, str(path.string(), ": no such file"));
  const auto size = std::filesystem::file_size(path, ec);
  if (ec || size > most_bytes) {
    throw Error(ErrorCode::model,
                str(path.string(), ": ", ec ? ec.message() : str(size, " bytes, at most ", most_bytes)));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(size))) {
    throw Error(ErrorCode::model, str(path.string(), ": cannot be read"));
  }
  return text;
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.starts_with("version https://git-lfs")) {
    throw Error(ErrorCode::model, str(where, ": a Git LFS pointer, not the file itself"), "fetch it: git lfs pull");
  }
  if (const size_t at = json_too_deep(text, kMostLevels); at != std::string_view::npos) {
    throw Error(ErrorCode::model, str(where, ": byte ", at + 1, ": nested deeper than ", kMostLevels, " levels"));
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::model, str(where, ": not valid JSON: ", printable(e.what(), 300)));
  }
}

const nlohmann::json* json_find(const nlohmann::json& object, const char* key, const std::string& where) {
  if (!object.is_object())
    throw Error(ErrorCode::model, str(where, ": expected an object, found ", object.type_name()));
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<bool> json_bool(const nlohmann::json& object, const char* key, const std::string& where) {
  const auto* v = json_find(object, key, where);
  if (v == nullptr) return std::nullopt;
  if (!v->is_boolean()) wrong(where, key, *v, "true or false");
  return v->get<bool>();
}

std::optional<std::string> json_text(const nlohmann::json& object, const char* key, const std::string& where) {
  const auto* v = json_find(object, key, where);
  if (v == nullptr) return std::nullopt;
  if (!v->is_string()) wrong(where, key, *v, "text");
  return v->get<std::string>();
}

std::optional<int64_t> json_integer(const nlohmann::json& object, const char* key, const std::string& where) {
  const auto* v = json_find(object, key, where);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > uint64_t{INT64_MAX})) {
    wrong(where, key, *v, "a whole number");
  }
  return v->get<int64_t>();
}

}  // namespace bantam
