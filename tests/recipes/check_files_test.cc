// SPDX-License-Identifier: Apache-2.0
#include "recipes/check_files.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "recipe_testing.h"
#include "recipes/init.h"

using namespace bantam;

namespace {

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / str("bantam_check_files_", getpid());
  Folder() { std::filesystem::create_directories(path / "model"); }
  ~Folder() { std::filesystem::remove_all(path); }
  Recipe::Dataset file(const std::string& content) const {
    const auto at = path / "d.jsonl";
    std::ofstream(at, std::ios::binary) << content;
    return {.path = at.string()};
  }
};

std::string data_error(const Recipe::Dataset& dataset) {
  try {
    detect_dataset_type(dataset);
  } catch (const Error& e) {
    return e.code() == ErrorCode::data ? str(e.what(), " | ", e.hint()) : "wrong code";
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the type of a dataset follows from its first row") {
  const Folder folder;
  using Type = Recipe::DatasetType;
  CHECK(detect_dataset_type(folder.file("{\"prompt\": \"a\", \"completion\": \"b\"}\n")) == Type::prompt_completion);
  CHECK(detect_dataset_type(folder.file("\xEF\xBB\xBF\r\n\n{\"text\": \"a\"}")) == Type::text);
  Recipe::Dataset named = folder.file("{\"q\": \"1\", \"a\": \"2\"}");
  CHECK(contains(data_error(named), ":1: no known shape of a row; the row has q, a"));
  named.field_prompt = "q";
  named.field_completion = "a";
  CHECK(detect_dataset_type(named) == Type::prompt_completion);
  CHECK(detect_dataset_type(folder.file("\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n")) ==
        Type::chat);
  CHECK(detect_dataset_type(folder.file("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}\n")) ==
        Type::chat);
  CHECK(detect_dataset_type(folder.file("{\"instruction\": \"a\", \"output\": \"b\"}\n")) == Type::alpaca);
  for (const char* bad : {"", "\n \n", "[1]\n", "{\"text\": \n", "{\"other\": 1}"}) {
    CAPTURE(bad);
    CHECK(contains(data_error(folder.file(bad)), "d.jsonl"));
  }
  CHECK(contains(data_error(folder.file(std::string(1 << 20, '['))), ":1:"));
  CHECK(contains(data_error({.path = (folder.path / "none.jsonl").string()}), "none.jsonl"));
}

TEST_CASE("files are looked for before anything is computed") {
  const Folder folder;
  Recipe recipe;
  recipe.base_model = (folder.path / "model").string();
  recipe.datasets = {folder.file("{\"text\": \"a\"}\n")};
  recipe.test_datasets = recipe.datasets;
  const auto told = check_files(recipe);
  REQUIRE(told.size() == 2);
  CHECK(contains(told[0], "d.jsonl: looks like type text"));
  CHECK(check_files(recipe).empty());  // it is known now
  CHECK(recipe.datasets[0].type == Recipe::DatasetType::text);
  CHECK(recipe.test_datasets[0].type == Recipe::DatasetType::text);
  const auto code = [](Recipe r) {
    try {
      check_files(r);
    } catch (const Error& e) {
      return static_cast<int>(e.code());
    }
    return 0;
  };
  Recipe no_model = recipe, no_data = recipe, folder_data = recipe;
  no_model.base_model += "x";
  no_data.test_datasets[0].path += "x";
  folder_data.datasets[0].path = (folder.path / "model").string();  // without data files
  CHECK(code(no_model) == 4);
  CHECK(code(no_data) == 3);
  CHECK(code(folder_data) == 3);
}

TEST_CASE("init writes a recipe that can be read, with the defaults") {
  const std::string text = init_recipe("./my models/m: 1", "rows.jsonl", Recipe::DatasetType::text, "recipe.yaml");
  const Recipe recipe = parse_recipe(text, "recipe.yaml").recipe;
  Recipe expected_recipe = recipe_of("");
  expected_recipe.base_model = (std::filesystem::current_path() / "my models/m: 1").string();
  expected_recipe.datasets = {
      {.path = (std::filesystem::current_path() / "rows.jsonl").string(), .type = Recipe::DatasetType::text}};
  expected_recipe.output_dir = (std::filesystem::current_path() / "outputs/m: 1-rows").string();
  CHECK(recipe == expected_recipe);
  CHECK(contains(text, "bantam plan recipe.yaml"));
}
