// SPDX-License-Identifier: Apache-2.0
// One JSON object a line. Blank lines, CR before a line end and a missing final newline are fine.
#include "../../text/utf8.h"
#include "row_reader_parts.h"

namespace bantam {
namespace {

class JsonLineReader final : public InputReader {
 public:
  using InputReader::InputReader;

  nlohmann::ordered_json parse(const RawRow& row, RowNotes& notes) const override {
    nlohmann::ordered_json out;
    if (const auto fault = parse_json_object(row.text, options_, out, notes)) {
      throw Error(ErrorCode::data, str(where(row, fault->offset), ": ", fault->what), hint_for(row, *fault));
    }
    return out;
  }

 private:
  bool cut(RawRow& row) override {
    for (;;) {
      row.line = in_.line();
      row.column = in_.column();
      row.text.clear();
      switch (in_.append_line(row.text, options_.limits.max_row_bytes)) {
        case RowInput::Line::end:
          return false;
        case RowInput::Line::too_long:
          throw Error(
              ErrorCode::data,
              str(file(), ":", row.line, ":1: line longer than ", options_.limits.max_row_bytes, " bytes"),
              "each line is one JSON object; is this really a JSONL file? One object around all rows: jq -c '.data[]'");
        case RowInput::Line::whole:
          break;
      }
      if (is_blank(row.text)) continue;
      if (row.text.back() == '\r') row.text.pop_back();
      return true;
    }
  }

  // What a wrong file often is, told from its first row; or a row that does not end on its line.
  std::string hint_for(const RawRow& row, const JsonFault& fault) const {
    if (row.line == 1 && row.text.starts_with("[")) {
      return "this looks like one JSON array: name the file .json, or write each element as one line (jq -c '.[]')";
    }
    if (fault.what.find("ill-formed UTF-8") != std::string::npos) {
      return "convert the file to UTF-8 first, e.g. from Windows: iconv -f WINDOWS-1252 -t UTF-8";
    }
    if (row.text.starts_with("{") && fault.offset >= row.text.size()) {
      return "each line is one whole JSON object; where objects take several lines: jq -c . FILE > NEW.jsonl";
    }
    if (row.line != 1) return "each line is one JSON object";
    return "each line is one JSON object, e.g. {\"prompt\": \"...\", \"completion\": \"...\"}";
  }
};

}  // namespace

std::unique_ptr<InputReader> json_line_rows(RowInput in, const std::string& packing, const ReaderOptions& options) {
  return std::make_unique<JsonLineReader>(std::move(in), "JSONL" + packing, options);
}

}  // namespace bantam
