// SPDX-License-Identifier: Apache-2.0
// What the row readers look at: a window into a file's bytes that moves on, with the line and column where it stands.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "../../../kernels/error.h"
#include "byte_source.h"

namespace bantam {

class RowInput {
 public:
  static constexpr size_t kBuffer = size_t{128} << 10;
  /// A byte order mark at the start is skipped. `most` bytes are shown at a time (tests make it small, so that
  /// everything straddles it once).
  RowInput(std::unique_ptr<ByteSource> source, std::string file, size_t most = kBuffer);

  /// The next n bytes, n <= kBuffer; less only where the file ends, or is damaged, before them.
  std::string_view peek(size_t n);
  /// Some of the next bytes; empty only at the end. The source's errors, with "file:line:column", when all before them
  /// is taken.
  std::string_view window();
  /// Moves on by n bytes of what window() showed.
  void take(size_t n);
  /// Likewise, for bytes without a line feed.
  void take_within_line(size_t n) { at_ += n, column_ += static_cast<int64_t>(n); }

  enum class Line { end, whole, too_long };
  /// Adds the next line to `text`, without its line feed. too_long: `text` would have passed `limit` bytes.
  Line append_line(std::string& text, size_t limit);

  const std::string& file() const { return file_; }
  int64_t line() const { return line_; }      ///< physical, from 1
  int64_t column() const { return column_; }  ///< in bytes, from 1
  std::string where() const;                  ///< "file:line:column"

 private:
  void fill();

  std::unique_ptr<ByteSource> source_;
  std::string file_, buffer_;
  size_t most_, at_ = 0, end_ = 0;
  int64_t line_ = 1, column_ = 1;
  bool ended_ = false;
  std::optional<Error> failure_;  // the source's
};

/// Nothing but spaces, tabs and carriage returns.
inline bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace bantam
