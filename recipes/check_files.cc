// SPDX-License-Identifier: Apache-2.0
#include "check_files.h"

#include <filesystem>

#include "../finetune/data/chat/conversation.h"
#include "../finetune/data/dataset.h"
#include "../finetune/data/rows/row_reader.h"
#include "../kernels/error.h"

namespace bantam {

DatasetType detect_dataset_type(const Recipe::Dataset& dataset) {
  const auto reader = open_rows(data_files(dataset.path).front(), {.sample_by = dataset.sample_by});
  RawRow raw;
  if (!reader->next(raw)) throw Error(ErrorCode::data, str(reader->file(), ": found no row"));
  RowNotes notes;
  const auto row = reader->parse(raw, notes);
  try {
    return detect_type(row, dataset);
  } catch (const Error& e) {
    throw Error(e.code(), str(reader->file(), ":", raw.line, ": ", e.what()), e.hint());
  }
}

std::vector<std::string> check_files(Recipe& recipe) {
  std::vector<std::string> notices;
  std::error_code error;
  if (!std::filesystem::exists(recipe.base_model, error)) {
    throw Error(ErrorCode::model, str("base_model: ", recipe.base_model, ": found no such folder or file"),
                "models are not downloaded in this version: give a folder with safetensors files, or a .gguf file");
  }
  for (auto* list : {&recipe.datasets, &recipe.test_datasets}) {
    for (Recipe::Dataset& dataset : *list) {
      data_files(dataset.path);  // throws where there is none
      if (dataset.type != DatasetType::automatic) continue;
      dataset.type = detect_dataset_type(dataset);
      notices.push_back(str(dataset.path, ": looks like type ", name_of(dataset.type)));
    }
  }
  bool chat = false;
  for (const auto* list : {&recipe.datasets, &recipe.test_datasets})
    for (const Recipe::Dataset& d : *list) chat = chat || d.type == DatasetType::chat;
  // A template that is missing or broken is said before the data are read. Alpaca rows do without.
  const bool named = recipe.chat_template != Recipe().chat_template;
  if ((chat || named) && !load_chat_template(recipe.base_model, recipe.chat_template)) {
    throw Error(ErrorCode::model, str(recipe.base_model, ": chat rows, and the model has no chat template"),
                "name one with chat_template, e.g. chat_template: chatml");
  }
  return notices;
}

}  // namespace bantam
