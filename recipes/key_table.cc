// SPDX-License-Identifier: Apache-2.0
#include "key_table.h"

#include "key_fields.h"

namespace bantam {

const std::vector<KeySpec>& key_table() {
  static const KeyList table = [] {
    KeyList t;
    add_model_keys(t), add_data_keys(t), add_training_keys(t);
    return t;
  }();
  return table;
}

const std::vector<ChoiceValue>& dataset_types() {
  static const std::vector<ChoiceValue> types = {{name_of(DatasetType::automatic)},
                                                 {name_of(DatasetType::prompt_completion)},
                                                 {name_of(DatasetType::text)},
                                                 {name_of(DatasetType::chat), Since::data},
                                                 {name_of(DatasetType::alpaca), Since::data}};
  return types;
}

}  // namespace bantam
