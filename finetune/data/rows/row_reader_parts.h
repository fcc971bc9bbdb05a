// SPDX-License-Identifier: Apache-2.0
// What the readers of rows share, and one maker for each kind of file.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "row_input.h"
#include "row_reader.h"

namespace bantam {

enum class FileKind : uint8_t { json_lines, json, csv, tsv, text };

/// By the name's end, without .gz or .zst, upper case or lower.
std::optional<FileKind> file_kind(const std::filesystem::path& file);
/// ".jsonl, .ndjson, ...", for messages.
extern const char* const kFileEndings;

/// Throws Error(data) for first bytes that are known to be something else than text, and says what to do.
/// `head`: of the file as it is.
void refuse_binary(std::string_view head, const std::string& file);
/// Likewise for the bytes after unpacking, at least HeadSource::kHead of them where the file is that long.
void refuse_other_text(std::string_view head, const std::string& file, FileKind kind);
/// Throws Error(data) for a .json file that is one object around the rows, or whose objects take several lines.
/// `start`: the first bytes; `whole`: there are no more.
void refuse_spread_json(std::string_view start, bool whole, const std::string& file);

/// The text of a file, unpacked where it is packed. Error(data) where that cannot be text; `kind` helps to tell.
struct TextInput {
  RowInput in;
  std::string packing;  ///< "" or ", gzip": the end of format()
};
TextInput open_text(std::unique_ptr<ByteSource> bytes, const std::string& name, std::optional<FileKind> kind,
                    size_t window = RowInput::kBuffer);

/// open_rows() over any bytes; `window` as in RowInput.
std::unique_ptr<RowReader> open_rows(std::unique_ptr<ByteSource> bytes, const std::string& name,
                                     const ReaderOptions& options, size_t window = RowInput::kBuffer);

/// A reader whose rows are cut from a RowInput. Once it has thrown, each further next() throws the same.
class InputReader : public RowReader {
 public:
  InputReader(RowInput in, std::string format, const ReaderOptions& options)
      : in_(std::move(in)), options_(options), format_(std::move(format)) {}
  bool next(RawRow& row) final;
  const std::string& file() const final { return in_.file(); }
  const std::string& format() const final { return format_; }
  /// Lines that next() has passed.
  int64_t lines() const { return in_.line() - (in_.column() == 1 ? 1 : 0); }

 protected:
  virtual bool cut(RawRow& row) = 0;
  /// "file:line:column" of the byte at that offset of the row.
  std::string where(const RawRow& row, size_t offset) const;
  /// Error(data) with the place, unless the row is UTF-8.
  void check_utf8(const RawRow& row) const;

  RowInput in_;
  ReaderOptions options_;
  std::string format_;

 private:
  std::exception_ptr failure_;
};

std::unique_ptr<InputReader> json_line_rows(RowInput in, const std::string& packing, const ReaderOptions& options);
std::unique_ptr<InputReader> json_array_rows(RowInput in, const std::string& packing, const ReaderOptions& options);
std::unique_ptr<InputReader> csv_rows(RowInput in, const std::string& packing, const ReaderOptions& options,
                                      FileKind kind);
std::unique_ptr<InputReader> text_rows(RowInput in, const std::string& packing, const ReaderOptions& options);

/// What is wrong with a JSON text.
struct JsonFault {
  size_t offset = 0;
  std::string what;
};
/// An object with its keys in the text's order (of equal keys the last one's value counts), or what is wrong with it.
/// Time and memory grow with the text's size alone.
std::optional<JsonFault> parse_json_object(std::string_view text, const ReaderOptions& options,
                                           nlohmann::ordered_json& object, RowNotes& notes);

/// Counts the carriage returns of a text, and makes CR LF and CR line feeds where that is wanted.
void note_carriage_returns(std::string& text, const ReaderOptions& options, RowNotes& notes);

}  // namespace bantam
