// SPDX-License-Identifier: Apache-2.0
// One JSON object per line, read as a stream: the reader of rows for JSONL, whatever the file's name.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "row_reader_parts.h"

namespace bantam {

struct JsonlLimits {
  size_t max_line_bytes = size_t{64} << 20;
  int max_depth = 64;
};

/// A byte order mark at the file's start, blank lines, CR before a line end and a missing final newline are fine; line
/// numbers are physical. Invalid UTF-8 and lone surrogates are refused like any other malformed line.
class JsonlReader {
 public:
  /// Error(data) when the file cannot be opened.
  explicit JsonlReader(const std::filesystem::path& path, const JsonlLimits& limits = {});
  /// The next row, always an object; false at the end. Error(data) "file:line:column: what"; columns count bytes
  /// from 1.
  bool next(nlohmann::json& row);
  int64_t line() const { return line_; }  ///< of the row that next() gave, from 1; at the end, how many there were
  const std::string& file() const { return reader_->file(); }
  std::string where() const { return file() + ":" + std::to_string(line_); }

 private:
  std::unique_ptr<InputReader> reader_;
  RawRow row_;
  int64_t line_ = 0;
};

/// Error(data) with file:line, the field's name and what was found, unless row[field] is a string; then that string.
const std::string& text_field(const nlohmann::json& row, const std::string& field, const JsonlReader& reader);

}  // namespace bantam
