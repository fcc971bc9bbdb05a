// SPDX-License-Identifier: Apache-2.0
// A JSON array of objects, element by element: brackets and quotes are followed here, the rest is for parse().
#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

constexpr const char* kHint = "a .json file of rows is one array of objects: [{...}, {...}]";

std::string first_character(std::string_view w) {
  return str("'", printable(w.substr(0, 1)), "'");
}

class JsonArrayReader final : public InputReader {
 public:
  JsonArrayReader(RowInput in, std::string format, const ReaderOptions& options)
      : InputReader(std::move(in), std::move(format), options) {}

  nlohmann::ordered_json parse(const RawRow& row, RowNotes& notes) const override {
    nlohmann::ordered_json out;
    if (const auto fault = parse_json_object(row.text, options_, out, notes)) {
      throw Error(ErrorCode::data, str(where(row, fault->offset), ": ", fault->what), kHint);
    }
    return out;
  }

 private:
  bool cut(RawRow& row) override {
    if (ended_) return false;
    if (!begun_) {
      skip_blanks();  // open_rows() has seen the bracket
      in_.take(1);
      begun_ = true;
      if (skip_blanks() == ']') return end();
    } else {
      const char c = skip_blanks();
      if (c == ']') return end();
      if (c != ',') wrong("expected ',' or ']' after an element");
      in_.take(1);
      if (skip_blanks() == ']') wrong("expected an element after ','");
    }
    row.line = in_.line();
    row.column = in_.column();
    row.text.clear();
    if (skip_blanks() != '{') wrong("expected an object");
    take_element(row);
    return true;
  }

  // The next byte that is none, untaken; 0 at the end of the file.
  char skip_blanks() {
    for (;;) {
      const std::string_view w = in_.window();
      if (w.empty()) return '\0';
      const size_t n = std::min(w.find_first_not_of(" \t\r\n"), w.size());
      in_.take(n);
      if (n < w.size()) return w[n];
    }
  }

  void take_element(RawRow& row) {
    size_t depth = 0;
    bool quoted = false, escaped = false;
    for (;;) {
      const std::string_view w = in_.window();
      if (w.empty()) {
        throw Error(ErrorCode::data,
                    str(in_.where(), ": the file ends within the element that begins on line ", row.line),
                    "is the file cut short? fetch or write it again");
      }
      size_t i = 0;
      bool whole = false;
      while (i < w.size() && !whole) {
        if (escaped) {
          escaped = false, ++i;
        } else if (quoted) {
          while (i < w.size() && w[i] != '"' && w[i] != '\\') ++i;
          if (i == w.size()) break;
          quoted = w[i] != '"';
          escaped = quoted;
          ++i;
        } else {
          const char c = w[i++];
          if (c == '"') {
            quoted = true;
          } else if (c == '{' || c == '[') {
            ++depth;
          } else if (c == '}' || c == ']') {
            whole = --depth == 0;
          }
        }
      }
      if (i > options_.limits.max_row_bytes - std::min(options_.limits.max_row_bytes, row.text.size())) {
        throw Error(ErrorCode::data,
                    str(file(), ":", row.line, ":", row.column, ": element longer than ", options_.limits.max_row_bytes,
                        " bytes"),
                    "is a quote or a bracket missing in it?");
      }
      row.text.append(w.substr(0, i));
      in_.take(i);
      if (whole) return;
    }
  }

  bool end() {
    in_.take(1);
    if (skip_blanks() != '\0' || !in_.window().empty()) wrong("expected the end of the file after the array");
    ended_ = true;
    return false;
  }

  [[noreturn]] void wrong(const char* expected) {
    const std::string_view w = in_.window();
    if (w.empty()) {
      throw Error(ErrorCode::data, str(in_.where(), ": ", expected, ", found the end of the file"),
                  "is the file cut short? fetch or write it again");
    }
    throw Error(ErrorCode::data, str(in_.where(), ": ", expected, ", found ", first_character(w)), kHint);
  }

  bool begun_ = false, ended_ = false;
};

}  // namespace

std::unique_ptr<InputReader> json_array_rows(RowInput in, const std::string& packing, const ReaderOptions& options) {
  return std::make_unique<JsonArrayReader>(std::move(in), "JSON array" + packing, options);
}

}  // namespace bantam
