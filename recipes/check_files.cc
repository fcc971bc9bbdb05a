// SPDX-License-Identifier: Apache-2.0
#include "check_files.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../kernels/error.h"
#include "values.h"

namespace bantam {
namespace {

constexpr size_t kLongestRow = size_t{64} << 20;

/// The first line that is not blank; `line` is its number.
std::string first_row(std::ifstream& in, const std::string& path, int64_t& line) {
  std::string row;
  line = 1;
  bool first = true;
  for (int c = in.get();; c = in.get()) {
    if (c == '\n' || c == std::char_traits<char>::eof()) {
      if (first && row.substr(0, 3) == "\xEF\xBB\xBF") row.erase(0, 3);
      first = false;
      if (row.find_first_not_of(" \t\r") != std::string::npos) return row;
      if (c != '\n') break;
      row.clear();
      ++line;
      continue;
    }
    row += static_cast<char>(c);
    if (row.size() > kLongestRow) {
      throw Error(ErrorCode::data,
                  str(path, ":", line, ": found more than ", kLongestRow, " bytes, expected a row of JSON"));
    }
  }
  throw Error(ErrorCode::data, str(path, ": found no row, expected one JSON object a line"));
}

/// The names of the top-level fields; values are skipped without being kept, however deep they are.
class FieldNames : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<std::string> names;
  bool object = false;
  std::string error;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override {
    if (depth_++ == 0) object = true;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) names.push_back(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    error = e.what();
    return false;
  }

 private:
  bool value() { return true; }
  bool close() {
    --depth_;
    return true;
  }
  int depth_ = 0;
};

void require_file(const std::string& path, const char* key) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return;
  const bool folder = std::filesystem::is_directory(path, error);
  throw Error(ErrorCode::data,
              str(key, ": ", path, ": found ", folder ? "a folder" : "no such file", ", expected a .jsonl file"),
              "relative paths are relative to the current directory");
}

}  // namespace

Recipe::DatasetType detect_dataset_type(const Recipe::Dataset& dataset) {
  std::ifstream in(dataset.path, std::ios::binary);
  if (!in) throw Error(ErrorCode::data, str(dataset.path, ": cannot open the dataset"));
  int64_t line = 0;
  const std::string row = first_row(in, dataset.path, line);
  FieldNames fields;
  if (!nlohmann::json::sax_parse(row, &fields)) {
    throw Error(ErrorCode::data, str(dataset.path, ":", line, ": not valid JSON: ", fields.error),
                "a dataset holds one JSON object a line");
  }
  if (!fields.object) throw Error(ErrorCode::data, str(dataset.path, ":", line, ": expected a JSON object a line"));
  const auto has = [&](const std::string& name) {
    return std::find(fields.names.begin(), fields.names.end(), name) != fields.names.end();
  };
  if (has(dataset.field_prompt) && has(dataset.field_completion)) return Recipe::DatasetType::prompt_completion;
  if (has(dataset.field_text)) return Recipe::DatasetType::text;
  std::string found;
  for (size_t i = 0; i < std::min<size_t>(fields.names.size(), 12); ++i) {
    found += (i ? ", " : "") + show(fields.names[i]);
  }
  const char* shape = has("messages") || has("conversations") ? "chat rows are known, not available in this version; "
                      : has("instruction")                    ? "alpaca rows are known, not available in this version; "
                                                              : "";
  throw Error(
      ErrorCode::data,
      str(dataset.path, ":", line, ": found the fields ", found.empty() ? "(none)" : found, ", expected ",
          show(dataset.field_prompt), " and ", show(dataset.field_completion), ", or ", show(dataset.field_text)),
      str(shape, "name other fields with datasets: [{path, type, field_prompt, field_completion, field_text}]"));
}

void check_files(Recipe& recipe) {
  std::error_code error;
  if (!std::filesystem::exists(recipe.base_model, error)) {
    throw Error(ErrorCode::model, str("base_model: ", recipe.base_model, ": found no such folder or file"),
                "models are not downloaded in this version: give a folder with safetensors files, or a .gguf file");
  }
  for (auto* list : {&recipe.datasets, &recipe.test_datasets}) {
    for (Recipe::Dataset& dataset : *list) {
      require_file(dataset.path, list == &recipe.datasets ? "datasets" : "test_datasets");
      if (dataset.type == Recipe::DatasetType::automatic) dataset.type = detect_dataset_type(dataset);
    }
  }
}

}  // namespace bantam
