// SPDX-License-Identifier: Apache-2.0
// What a file is, by its name and its first bytes, and what to do about one that holds no rows.
#include <algorithm>
#include <array>

#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

std::string lower(std::string s) {
  for (char& c : s) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return s;
}

// The file's name for a command line in single quotes within double ones; another where it would need escapes.
std::string name_in_command(const std::string& file, const char* otherwise) {
  return file.find_first_of("'\"\\$`!") == std::string::npos && utf8_valid(file) ? file : otherwise;
}

std::string pandas(const char* read, const std::string& file) {
  const std::filesystem::path name = name_in_command(file, "FILE");
  return str("convert it: python -c \"import pandas as pd; pd.", read, "('", name.string(), "').to_json('",
             std::filesystem::path(name).replace_extension(".jsonl").string(), "', orient='records', lines=True)\"");
}

[[noreturn]] void refuse(const std::string& file, const char* what, const std::string& hint) {
  throw Error(ErrorCode::data, str(file, ": ", what), hint);
}

}  // namespace

const char* const kFileEndings = ".jsonl, .ndjson, .json, .csv, .tsv, .txt, .md; each also with .gz or .zst after it";

std::optional<FileKind> file_kind(const std::filesystem::path& file) {
  std::filesystem::path name = file.filename();
  const std::string packed = lower(name.extension().string());
  if (packed == ".gz" || packed == ".zst") name = name.stem();
  const std::string end = lower(name.extension().string());
  if (end == ".jsonl" || end == ".ndjson") return FileKind::json_lines;
  if (end == ".json") return FileKind::json;
  if (end == ".csv") return FileKind::csv;
  if (end == ".tsv") return FileKind::tsv;
  if (end == ".txt" || end == ".md") return FileKind::text;
  return std::nullopt;
}

void refuse_binary(std::string_view head, const std::string& file) {
  const std::string ending = lower(std::filesystem::path(file).extension().string());
  if (head.starts_with("PAR1")) refuse(file, "a Parquet file, which is not read", pandas("read_parquet", file));
  if (head.starts_with("ARROW1")) refuse(file, "an Arrow file, which is not read", pandas("read_feather", file));
  if (head.starts_with("\xff\xff\xff\xff") && ending == ".arrow") {
    const std::filesystem::path name = name_in_command(file, "FILE");
    refuse(file, "an Arrow stream, which is not read",
           str("convert it: python -c \"from datasets import Dataset; Dataset.from_file('", name.string(),
               "').to_json('", std::filesystem::path(name).replace_extension(".jsonl").string(), "')\""));
  }
  if (head.starts_with(std::string_view("SQLite format 3\0", 16))) {
    refuse(file, "an SQLite database, which is not read",
           str("write a table as JSON: sqlite3 -json '", name_in_command(file, "FILE"),
               "' 'SELECT * FROM TABLE' > rows.json"));
  }
  if (head.starts_with("PK\x03\x04") || head.starts_with("\xd0\xcf\x11\xe0")) {
    if (ending.starts_with(".xls") || head[0] != 'P') {
      refuse(file, "a spreadsheet, which is not read", pandas("read_excel", file));
    }
    refuse(file, "a zip archive, which is not read", "unzip it and name the files inside");
  }
  if (head.starts_with("BZh")) refuse(file, "a bzip2 archive, which is not read", "unpack it (bunzip2), or use gzip");
  if (head.starts_with(std::string_view("\xfd\x37zXZ\0", 6))) {
    refuse(file, "an xz archive, which is not read", "unpack it (unxz), or use zstd");
  }
  if (head.starts_with("%PDF-")) refuse(file, "a PDF, which is not read", "take its text out, e.g. pdftotext");
}

void refuse_other_text(std::string_view head, const std::string& file, FileKind kind) {
  if (is_gzip(head) || is_zstd(head)) refuse(file, "packed twice", "unpack it once");
  if (head.size() > 262 && head.substr(257).starts_with("ustar")) {
    refuse(file, "a tar archive, which is not read", "unpack it and name the files inside");
  }
  refuse_binary(head, file);
  if (head.empty()) refuse(file, "the file is empty: no rows", "");
  const auto zero = [&](size_t i) { return i < head.size() && head[i] == '\0'; };
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff") ||
      (head.size() >= 4 && ((zero(1) && zero(3)) || (zero(0) && zero(2))))) {
    const std::string name = name_in_command(file, "FILE");
    refuse(file, "this is UTF-16 or UTF-32, expected UTF-8",
           str("convert it: iconv -f UTF-16 -t UTF-8 '", name, "' > NEW; Windows: save as UTF-8"));
  }
  if (head.starts_with("version https://git-lfs")) {
    refuse(file, "this is a Git LFS pointer, not the file itself", "fetch the file itself: git lfs pull");
  }
  const size_t first = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const std::string start = lower(std::string(head.substr(first, 16)));
  const bool json = kind == FileKind::json_lines || kind == FileKind::json;
  if (start.starts_with("<!doctype html") || start.starts_with("<html") || (json && start.starts_with("<"))) {
    refuse(file, "this looks like a web page, not a dataset", "download the file itself");
  }
}

void refuse_spread_json(std::string_view start, bool whole, const std::string& file) {
  static constexpr std::array<std::string_view, 9> kAround = {"data",  "rows",      "train",   "examples", "records",
                                                              "items", "instances", "dataset", "samples"};
  const size_t first = start.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return;
  if (start[first] != '{') {
    throw Error(ErrorCode::data, str(file, ":1: expected '[' or '{', found '", printable(start.substr(first, 1)), "'"),
                "a .json file of rows is one array of objects, or has one object a line");
  }
  // Over the first object: keys of its own level, and where it ends.
  std::string around;
  int64_t depth = 0;
  size_t i = first, key = 0, key_size = 0;
  bool ended = false, line_end = false, after_colon = false;
  for (; i < start.size() && !ended; ++i) {
    const char c = start[i];
    if (c == '"') {
      const size_t from = i + 1;
      for (++i; i < start.size() && start[i] != '"'; ++i) i += start[i] == '\\' ? 1 : 0;
      if (depth == 1 && !after_colon) key = from, key_size = std::min(i, start.size()) - from;
    } else if (c == '{' || c == '[') {
      if (c == '{' && depth == 2 && around.empty()) {
        const std::string_view before = start.substr(0, i);
        const size_t last = before.find_last_not_of(" \t\r\n");
        const std::string_view name = start.substr(key, key_size);
        if (before[last] == '[' && std::find(kAround.begin(), kAround.end(), name) != kAround.end()) around = name;
      }
      ++depth;
    } else if (c == '}' || c == ']') {
      ended = --depth <= 0;
    } else if (c == '\n') {
      line_end = true;
    }
    if (depth == 1 && (c == ':' || c == ',')) after_colon = c == ':';
  }
  const std::string name = name_in_command(file, "FILE");
  const bool alone = ended && whole && start.find_first_not_of(" \t\r\n", i) == std::string_view::npos;
  if (!around.empty() && (line_end || alone || !ended)) {
    throw Error(ErrorCode::data,
                str(file, ":1: one object around rows in '", around, "', expected one array or one object a line"),
                str("take the rows out: jq -c '.", around, "[]' '", name, "' > NEW.jsonl"));
  }
  if (line_end) {
    throw Error(ErrorCode::data, str(file, ":1: an object over several lines, expected one array or one object a line"),
                str("write each object as one line: jq -c . '", name, "' > NEW.jsonl"));
  }
}

}  // namespace bantam
