// SPDX-License-Identifier: Apache-2.0
#include "jsonl.h"

#include "../../kernels/error.h"
#include "../text/utf8.h"

namespace bantam {

JsonlReader::JsonlReader(const std::filesystem::path& path, const JsonlLimits& limits) {
  auto [in, packing] = open_text(open_file(path), path.string(), FileKind::json_lines);
  const ReaderOptions options{.limits = {.max_row_bytes = limits.max_line_bytes, .max_depth = limits.max_depth}};
  reader_ = json_line_rows(std::move(in), packing, options);
}

bool JsonlReader::next(nlohmann::json& row) {
  if (!reader_->next(row_)) {
    line_ = reader_->lines();
    return false;
  }
  line_ = row_.line;
  RowNotes notes;
  row = reader_->parse(row_, notes);
  return true;
}

const std::string& text_field(const nlohmann::json& row, const std::string& field, const JsonlReader& reader) {
  const auto it = row.find(field);
  if (it == row.end()) {
    std::string found;
    for (const auto& [key, value] : row.items()) {
      if (found.size() > 200) {
        found += ", ...";
        break;
      }
      found += (found.empty() ? "" : ", ") + printable(key, 60);
    }
    throw Error(
        ErrorCode::data, str(reader.where(), ": no field '", field, "' (found: ", found.empty() ? "none" : found, ")"),
        "name the row's field with field_prompt, field_completion or field_text, or choose another dataset type");
  }
  if (!it->is_string()) {
    throw Error(ErrorCode::data, str(reader.where(), ": ", field, ": expected text, found ", it->type_name()));
  }
  return it->get_ref<const std::string&>();
}

}  // namespace bantam
