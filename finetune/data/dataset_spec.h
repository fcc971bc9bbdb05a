// SPDX-License-Identifier: Apache-2.0
// Which rows, and what their fields are called.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rows/row_format.h"

namespace bantam {

enum class DatasetType : uint8_t { automatic, prompt_completion, text, chat, alpaca };

struct DatasetSpec {
  std::string path;  ///< a file, a folder or a pattern
  DatasetType type = DatasetType::automatic;
  double weight = 1;  ///< how often each row is visited in an epoch; 0.5: half of the rows, others in each epoch
  SampleBy sample_by = SampleBy::document;

  // prompt_completion, text
  std::string field_prompt = "prompt", field_completion = "completion", field_text = "text";
  // alpaca
  std::string field_instruction = "instruction", field_input = "input", field_output = "output";
  // chat and alpaca
  std::string field_system = "system";
  // chat; empty: by what the first row has (messages or conversations; role, content or from, value)
  std::string field_messages, field_role, field_content;
  std::string field_tools = "tools";
  std::string field_train = "train", field_weight = "weight";  ///< of a message
  std::vector<std::pair<std::string, std::string>> roles;  ///< the data's name -> the template's; before the usual ones

  bool operator==(const DatasetSpec&) const = default;
};

}  // namespace bantam
