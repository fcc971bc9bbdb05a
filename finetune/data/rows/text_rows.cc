// SPDX-License-Identifier: Apache-2.0
// Plain text: the whole file, its paragraphs or its lines as rows {"text": ...}. CR before a line end belongs to the
// line end; lines of blanks stand between paragraphs, and are no rows of their own.
#include <algorithm>

#include "row_reader_parts.h"

namespace bantam {
namespace {

// CR LF to LF; a CR anywhere else stays.
void make_line_feeds(std::string& text) {
  size_t to = text.find("\r\n");
  if (to == std::string::npos) return;
  for (size_t i = to; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') text[to++] = text[i];
  }
  text.resize(to);
}

class TextReader final : public InputReader {
 public:
  using InputReader::InputReader;

  nlohmann::ordered_json parse(const RawRow& row, RowNotes& notes) const override {
    check_utf8(row);
    std::string text = row.text;
    make_line_feeds(text);
    note_carriage_returns(text, options_, notes);
    nlohmann::ordered_json out;
    out["text"] = std::move(text);
    return out;
  }

 private:
  bool cut(RawRow& row) override {
    row.text.clear();
    switch (options_.sample_by) {
      case SampleBy::document:
        return cut_document(row);
      case SampleBy::paragraph:
        return cut_paragraph(row);
      case SampleBy::line:
        break;
    }
    return next_text_line(row);
  }

  bool cut_document(RawRow& row) {
    row.line = in_.line();
    bool blank = true;
    for (std::string_view w = in_.window(); !w.empty(); w = in_.window()) {
      if (w.size() > options_.limits.max_row_bytes - std::min(options_.limits.max_row_bytes, row.text.size())) {
        too_long(row, "the document is");
      }
      row.text.append(w);
      blank = blank && w.find_first_not_of(" \t\r\n") == std::string_view::npos;
      in_.take(w.size());
    }
    return !blank;
  }

  bool cut_paragraph(RawRow& row) {
    if (!next_text_line(row)) return false;
    for (;;) {
      const size_t before = row.text.size();
      row.text += '\n';
      switch (in_.append_line(row.text, options_.limits.max_row_bytes)) {
        case RowInput::Line::too_long:
          too_long(row, "the paragraph is");
        case RowInput::Line::whole:
          if (!is_blank(std::string_view(row.text).substr(before + 1))) continue;
          break;
        case RowInput::Line::end:
          break;
      }
      row.text.resize(before);
      drop_line_end(row.text);
      return true;
    }
  }

  // The next line that is not blank, with its CR where a paragraph goes on.
  bool next_text_line(RawRow& row) {
    do {
      row.line = in_.line();
      row.text.clear();
      const auto line = in_.append_line(row.text, options_.limits.max_row_bytes);
      if (line == RowInput::Line::end) return false;
      if (line == RowInput::Line::too_long) too_long(row, "the line is");
    } while (is_blank(row.text));
    if (options_.sample_by == SampleBy::line) drop_line_end(row.text);
    return true;
  }

  static void drop_line_end(std::string& text) {
    if (text.ends_with('\r')) text.pop_back();
  }

  [[noreturn]] void too_long(const RawRow& row, const char* what) const {
    throw Error(ErrorCode::data,
                str(file(), ":", row.line, ":1: ", what, " longer than ", options_.limits.max_row_bytes, " bytes"),
                options_.sample_by == SampleBy::document    ? "cut it into rows: sample_by: paragraph, or line"
                : options_.sample_by == SampleBy::paragraph ? "cut it into rows: sample_by: line"
                                                            : "break the line, or cut the file into several");
  }
};

}  // namespace

std::unique_ptr<InputReader> text_rows(RowInput in, const std::string& packing, const ReaderOptions& options) {
  return std::make_unique<TextReader>(std::move(in), "text" + packing, options);
}

}  // namespace bantam
