// SPDX-License-Identifier: Apache-2.0
#include "jsonl.h"

#include <algorithm>
#include <cstring>

#include "../../kernels/error.h"
#include "../text/json_file.h"
#include "../text/utf8.h"

namespace bantam {
namespace {

constexpr size_t kChunk = 1 << 20;

// What a wrong file often is, told from the first bytes of its first line.
std::string hint_for(std::string_view text, int64_t line) {
  if (line != 1) return "each line is one JSON object";
  if (text.starts_with("version https://git-lfs"))
    return "this is a Git LFS pointer: fetch the file itself (git lfs pull)";
  if (text.starts_with("<")) return "this looks like a web page, not a dataset: download the file itself";
  if (text.starts_with("PAR1")) return "this is a Parquet file: convert it to JSONL first";
  if (text.starts_with("\x1f\x8b")) return "this is a gzip file: unpack it first";
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return "this is UTF-16: convert it to UTF-8 first";
  if (text.starts_with("[")) return "this looks like one JSON array: write each element as one line (jq -c '.[]')";
  return "each line is one JSON object, e.g. {\"prompt\": \"...\", \"completion\": \"...\"}";
}

}  // namespace

JsonlReader::JsonlReader(const std::filesystem::path& path, const JsonlLimits& limits)
    : file_(path.string()), limits_(limits) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) {
    throw Error(ErrorCode::data, str(file_, ": no such file"),
                "check the path; relative paths start at the current directory");
  }
  if (std::filesystem::is_directory(path, ec)) {
    throw Error(ErrorCode::data, str(file_, ": is a folder, expected a .jsonl file"), "name the file inside it");
  }
  in_.open(path, std::ios::binary);
  if (!in_) throw Error(ErrorCode::data, str(file_, ": cannot be opened: ", std::strerror(errno)));
}

bool JsonlReader::next_line() {
  text_.clear();
  bool any = false;
  for (;;) {
    if (at_ == chunk_.size()) {
      chunk_.resize(kChunk);
      in_.read(chunk_.data(), static_cast<std::streamsize>(kChunk));
      chunk_.resize(static_cast<size_t>(in_.gcount()));
      at_ = 0;
      if (in_.bad()) throw Error(ErrorCode::io, str(file_, ": read error after line ", line_));
      if (chunk_.empty()) {
        line_ += any ? 1 : 0;
        return any;
      }
    }
    const char* begin = chunk_.data() + at_;
    const size_t left = chunk_.size() - at_;
    const void* end = std::memchr(begin, '\n', left);
    const size_t n = end != nullptr ? static_cast<size_t>(static_cast<const char*>(end) - begin) : left;
    if (n > limits_.max_line_bytes - std::min(limits_.max_line_bytes, text_.size())) {
      throw Error(ErrorCode::data,
                  str(file_, ":", line_ + 1, ":1: line longer than ", limits_.max_line_bytes, " bytes"),
                  "each line is one JSON object; is this really a JSONL file?");
    }
    text_.append(begin, n);
    any = true;
    at_ += n;
    if (end != nullptr) {
      ++at_;
      ++line_;
      return true;
    }
  }
}

bool JsonlReader::next(nlohmann::json& row) {
  for (;;) {
    if (!next_line()) return false;
    if (line_ == 1 && text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);
    if (text_.find_first_not_of(" \t\r") != std::string::npos) break;
  }
  // Before parsing, so that no deep value is ever built (its copy and destruction would recurse).
  if (const size_t at = json_too_deep(text_, limits_.max_depth); at != std::string::npos) {
    throw Error(ErrorCode::data, str(where(), ":", at + 1, ": nested deeper than ", limits_.max_depth, " levels"));
  }
  try {
    row = nlohmann::json::parse(text_);
  } catch (const nlohmann::json::parse_error& e) {
    std::string what = e.what();
    const size_t column = what.find("column ");
    const size_t colon = column == std::string::npos ? std::string::npos : what.find(": ", column);
    if (colon != std::string::npos) what.erase(0, colon + 2);
    throw Error(ErrorCode::data, str(where(), ":", std::max<size_t>(e.byte, 1), ": ", printable(what, 300)),
                hint_for(text_, line_));
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::data, str(where(), ":1: ", printable(e.what(), 300)), hint_for(text_, line_));
  }
  if (!row.is_object()) {
    throw Error(ErrorCode::data, str(where(), ":1: expected an object, found ", row.type_name()),
                hint_for(text_, line_));
  }
  return true;
}

const std::string& text_field(const nlohmann::json& row, const std::string& field, const JsonlReader& reader) {
  const auto it = row.find(field);
  if (it == row.end()) {
    std::string found;
    for (const auto& [key, value] : row.items()) {
      if (found.size() > 200) {
        found += ", ...";
        break;
      }
      found += (found.empty() ? "" : ", ") + printable(key, 60);
    }
    throw Error(
        ErrorCode::data, str(reader.where(), ": no field '", field, "' (found: ", found.empty() ? "none" : found, ")"),
        "name the row's field with field_prompt, field_completion or field_text, or choose another dataset type");
  }
  if (!it->is_string()) {
    throw Error(ErrorCode::data, str(reader.where(), ": ", field, ": expected text, found ", it->type_name()));
  }
  return it->get_ref<const std::string&>();
}

}  // namespace bantam
