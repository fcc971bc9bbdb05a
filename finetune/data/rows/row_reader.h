// SPDX-License-Identifier: Apache-2.0
// Files of rows, read as a stream: JSON lines, a JSON array, CSV, plain text; gzip and zstd too. Reading cuts a file
// into rows on one thread, parsing them is for many.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "row_format.h"

namespace bantam {

struct ReaderLimits {
  size_t max_row_bytes = size_t{64} << 20;
  int max_depth = 64;
};

struct ReaderOptions {
  ReaderLimits limits;
  SampleBy sample_by = SampleBy::document;
  bool normalize_newlines = false;  ///< CR LF and CR inside of texts become LF
};

/// A row as it stands in the file; parse() of the reader it came from understands it.
struct RawRow {
  int64_t line = 0;    ///< physical, on which it begins, from 1
  int64_t column = 1;  ///< in bytes, there; other than 1 only in a JSON array
  std::string text;
};

/// What was found in a row that is no error.
struct RowNotes {
  int64_t carriage_returns = 0;  ///< inside of texts, whether kept or normalised
};

class RowReader {
 public:
  virtual ~RowReader() = default;
  /// The next row; false at the end. Not from several threads. Error(data) "file:line:column: what" for what ends the
  /// reading: a damaged archive, a row over max_row_bytes, an array that is none; Error(io) where the disk fails.
  virtual bool next(RawRow& row) = 0;
  /// From any thread. Always an object. Error(data) "file:line:column: what" for a malformed row; columns count bytes
  /// from 1. Invalid UTF-8 and lone surrogates are malformed; surrogate pairs are joined.
  virtual nlohmann::ordered_json parse(const RawRow& row, RowNotes& notes) const = 0;
  virtual const std::string& file() const = 0;
  /// What the name and the first bytes said, for people: "JSONL", "JSON array, gzip", "CSV", "text".
  virtual const std::string& format() const = 0;
};

/// By the file's name, checked against its first bytes. Error(data) when it cannot be opened, and for what only looks
/// like data (Git LFS pointer, web page, Parquet, Arrow, UTF-16, an empty file), with what to do.
std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file, const ReaderOptions& options = {});

/// Files that a path of a dataset stands for: itself; those that a pattern (* ? [a-z], ** for folders at any depth)
/// matches; the data files of a folder. In order of name. Error(data) when there is none.
std::vector<std::filesystem::path> data_files(const std::string& path);

}  // namespace bantam
