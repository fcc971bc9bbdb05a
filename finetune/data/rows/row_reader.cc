// SPDX-License-Identifier: Apache-2.0
#include "row_reader.h"

#include <algorithm>

#include "../../../kernels/error.h"
#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

// Enough to see the keys of an object that takes several lines.
constexpr size_t kStart = size_t{64} << 10;

}  // namespace

bool InputReader::next(RawRow& row) {
  if (failure_) std::rethrow_exception(failure_);
  row.column = 1;
  try {
    return cut(row);
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

std::string InputReader::where(const RawRow& row, size_t offset) const {
  const std::string_view before = std::string_view(row.text).substr(0, offset);
  const size_t last = before.rfind('\n');
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t column =
      last == std::string_view::npos ? offset + static_cast<size_t>(row.column) : before.size() - last;
  return str(file(), ":", row.line + lines, ":", column);
}

void InputReader::check_utf8(const RawRow& row) const {
  const size_t at = utf8_valid_prefix(row.text);
  if (at == row.text.size()) return;
  throw Error(ErrorCode::data,
              str(where(row, at), ": not UTF-8 (", printable(std::string_view(row.text).substr(at, 1)), ")"),
              "convert the file to UTF-8 first, e.g. from Windows: iconv -f WINDOWS-1252 -t UTF-8");
}

void note_carriage_returns(std::string& text, const ReaderOptions& options, RowNotes& notes) {
  const auto count = std::count(text.begin(), text.end(), '\r');
  if (count == 0) return;
  notes.carriage_returns += count;
  if (!options.normalize_newlines) return;
  size_t to = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[to++] = text[i] == '\r' ? '\n' : text[i];
  }
  text.resize(to);
}

TextInput open_text(std::unique_ptr<ByteSource> bytes, const std::string& name, std::optional<FileKind> kind,
                    size_t window) {
  std::unique_ptr<HeadSource> head;
  try {
    head = std::make_unique<HeadSource>(std::move(bytes));
  } catch (const Error& e) {
    throw Error(e.code(), str(name, ": ", e.what()), e.hint());
  }
  refuse_binary(head->head(), name);
  std::string packing;
  std::unique_ptr<ByteSource> source;
  if (is_gzip(head->head())) {
    packing = ", gzip";
    source = gunzip(std::move(head));
  } else if (is_zstd(head->head())) {
    packing = ", zstd";
    source = unzstd(std::move(head));
  } else {
    source = std::move(head);
  }
  TextInput out{RowInput(std::move(source), name, window), packing};
  const std::string_view start = out.in.peek(HeadSource::kHead);
  if (start.empty()) out.in.window();  // says what is wrong with an archive that is damaged from its start
  refuse_other_text(start, name, kind.value_or(FileKind::text));
  return out;
}

std::unique_ptr<RowReader> open_rows(std::unique_ptr<ByteSource> bytes, const std::string& name,
                                     const ReaderOptions& options, size_t window) {
  const auto kind = file_kind(name);
  auto [in, packing] = open_text(std::move(bytes), name, kind, window);
  if (!kind) {
    throw Error(ErrorCode::data, str(name, ": the name does not say what kind of file this is"),
                str("known: ", kFileEndings));
  }
  switch (*kind) {
    case FileKind::json_lines:
      return json_line_rows(std::move(in), packing, options);
    case FileKind::json: {
      const std::string_view start = in.peek(kStart);
      const size_t first = start.find_first_not_of(" \t\r\n");
      if (first == std::string_view::npos) return json_line_rows(std::move(in), packing, options);
      if (start[first] == '[') return json_array_rows(std::move(in), packing, options);
      refuse_spread_json(start, start.size() < kStart, name);
      return json_line_rows(std::move(in), packing, options);
    }
    case FileKind::csv:
    case FileKind::tsv:
      return csv_rows(std::move(in), packing, options, *kind);
    case FileKind::text:
      break;
  }
  return text_rows(std::move(in), packing, options);
}

std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file, const ReaderOptions& options) {
  return open_rows(open_file(file), file.string(), options);
}

}  // namespace bantam
