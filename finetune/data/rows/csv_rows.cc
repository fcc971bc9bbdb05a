// SPDX-License-Identifier: Apache-2.0
// CSV as RFC 4180 has it: a header, fields in quotes where they hold delimiters, quotes or line ends. A quote inside a
// field that does not begin with one stands for itself, as in Python's reader. All values are strings.
#include <algorithm>
#include <cstring>
#include <set>

#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

constexpr size_t kManyNames = 8;

class CsvReader final : public InputReader {
 public:
  CsvReader(RowInput in, const std::string& packing, const ReaderOptions& options, FileKind kind)
      : InputReader(std::move(in), {}, options), delimiter_(kind == FileKind::tsv ? '\t' : ',') {
    read_header(kind);
    format_ = str(kind == FileKind::tsv ? "TSV" : "CSV", delimiter_ == ';' ? " with semicolons" : "", packing);
  }

  nlohmann::ordered_json parse(const RawRow& row, RowNotes& notes) const override {
    check_utf8(row);
    std::vector<std::string> values = fields(row);
    if (values.size() != names_.size()) {
      std::string names;
      for (size_t i = 0; i < names_.size() && i < kManyNames; ++i) {
        names += (i == 0 ? "" : ", ") + printable(names_[i], 60);
      }
      throw Error(ErrorCode::data,
                  str(where(row, 0), ": ", values.size(), values.size() == 1 ? " field" : " fields",
                      ", the header names ", names_.size(), " (", names, names_.size() > kManyNames ? ", ...)" : ")"),
                  "a field that holds the delimiter, quotes or line ends stands in double quotes");
    }
    nlohmann::ordered_json out = nlohmann::ordered_json::object();
    // Names differ from each other: no need to look for each among those before it.
    auto& members = out.get_ref<nlohmann::ordered_json::object_t&>();
    members.reserve(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      note_carriage_returns(values[i], options_, notes);
      members.emplace_back(names_[i], std::move(values[i]));
    }
    return out;
  }

 private:
  enum class At : uint8_t { field_start, plain, quoted, after_quote };

  bool cut(RawRow& row) override {
    do {
      if (!cut_record(row)) return false;
    } while (row.text.find_first_not_of(' ') == std::string::npos);
    return true;
  }

  // A record without its line end. fields() walks over quotes in the same way.
  bool cut_record(RawRow& row) {
    row.line = in_.line();
    row.text.clear();
    At at = At::field_start;
    size_t quote = 0;  // where the last one opened
    for (;;) {
      const std::string_view w = in_.window();
      if (w.empty()) {
        if (at == At::quoted) not_closed(row, quote);
        const bool any = !row.text.empty();
        if (row.text.ends_with('\r')) row.text.pop_back();
        return any;
      }
      size_t i = 0;
      bool whole = false;
      for (; i < w.size() && !whole; ++i) {
        const char c = w[i];
        if (at == At::quoted) {
          if (c == '"') at = At::after_quote;
        } else if (c == '"' && at == At::after_quote) {
          at = At::quoted;
        } else if (c == '"' && at == At::field_start) {
          at = At::quoted;
          quote = row.text.size() + i;
        } else if (c == '\n') {
          whole = true;
        } else {
          at = c == delimiter_ ? At::field_start : At::plain;
        }
      }
      if (i > options_.limits.max_row_bytes - std::min(options_.limits.max_row_bytes, row.text.size())) {
        row.text.append(w.substr(0, i));
        throw Error(ErrorCode::data,
                    str(file(), ":", row.line, ":1: row longer than ", options_.limits.max_row_bytes, " bytes"),
                    at == At::quoted ? str("is the quote closed that opens at ", where(row, quote), "?")
                                     : std::string("is this really a CSV file?"));
      }
      row.text.append(w.substr(0, i));
      in_.take(i);
      if (!whole) continue;
      row.text.pop_back();
      if (row.text.ends_with('\r')) row.text.pop_back();
      return true;
    }
  }

  [[noreturn]] void not_closed(const RawRow& row, size_t quote) const {
    throw Error(ErrorCode::data, str(where(row, quote), ": the quote that opens here is not closed"),
                "close it, or double the quotes inside of the field");
  }

  std::vector<std::string> fields(const RawRow& row) const {
    const std::string& s = row.text;
    std::vector<std::string> out;
    out.reserve(names_.size());
    for (size_t i = 0;; ++i) {
      std::string& field = out.emplace_back();
      if (i < s.size() && s[i] == '"') {
        const size_t quote = i;
        for (++i;; i += 2) {
          const size_t end = s.find('"', i);
          if (end == std::string::npos) not_closed(row, quote);
          field.append(s, i, end - i);
          i = end;
          if (i + 1 >= s.size() || s[i + 1] != '"') break;
          field += '"';
        }
        ++i;
        if (i < s.size() && s[i] != delimiter_) {
          throw Error(ErrorCode::data,
                      str(where(row, i), ": '", printable(std::string_view(s).substr(i, 1)),
                          "' after the closing quote of a field, expected '", printable({&delimiter_, 1}),
                          "' or the line's end"),
                      "double the quotes inside of a quoted field");
        }
      } else {
        const size_t end = std::min(s.find(delimiter_, i), s.size());
        field.assign(s, i, end - i);
        i = end;
      }
      if (i >= s.size()) return out;
    }
  }

  void read_header(FileKind kind) {
    RawRow row;
    if (!cut(row)) throw Error(ErrorCode::data, str(file(), ": no header: all lines are blank"));
    check_utf8(row);
    if (kind == FileKind::csv) choose_delimiter(row);
    names_ = fields(row);
    std::set<std::string_view> seen;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].empty()) {
        throw Error(
            ErrorCode::data, str(where(row, 0), ": column ", i + 1, " of the header has no name"),
            "the first line names the fields; pandas writes a nameless first column unless to_csv(index=False)");
      }
      if (!seen.insert(names_[i]).second) {
        throw Error(ErrorCode::data, str(where(row, 0), ": the header names '", printable(names_[i], 60), "' twice"));
      }
      if (names_[i].find('\r') != std::string::npos) {
        throw Error(ErrorCode::data, str(where(row, 0), ": a carriage return in the header's name ", i + 1),
                    "lines end with LF or CR LF; convert old line ends: tr '\\r' '\\n'");
      }
    }
  }

  // By what stands outside of quotes in the header.
  void choose_delimiter(const RawRow& row) {
    bool quoted = false, comma = false, semicolon = false, tab = false;
    for (const char c : row.text) {
      quoted = quoted != (c == '"');
      comma = comma || (!quoted && c == ',');
      semicolon = semicolon || (!quoted && c == ';');
      tab = tab || (!quoted && c == '\t');
    }
    if (!comma && !semicolon && tab) {
      throw Error(ErrorCode::data, str(where(row, 0), ": the header has tabs and no comma"), "name the file .tsv");
    }
    if (!comma && semicolon) delimiter_ = ';';
  }

  char delimiter_;
  std::vector<std::string> names_;
};

}  // namespace

std::unique_ptr<InputReader> csv_rows(RowInput in, const std::string& packing, const ReaderOptions& options,
                                      FileKind kind) {
  return std::make_unique<CsvReader>(std::move(in), packing, options, kind);
}

}  // namespace bantam
