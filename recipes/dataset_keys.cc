// SPDX-License-Identifier: Apache-2.0
#include "dataset_keys.h"

#include <algorithm>
#include <filesystem>

#include "../kernels/error.h"
#include "key_table.h"
#include "values.h"

namespace bantam {
namespace {

using D = Recipe::Dataset;
using enum DatasetType;

}  // namespace

const std::vector<DatasetKey>& dataset_keys() {
  static const std::vector<DatasetKey> keys = {
      {"path", {}, nullptr, "A file (.jsonl, .json, .csv, .txt, also .gz and .zst), a folder or a pattern.", {}},
      {"type", {}, nullptr, "Shape of the rows.", {}},
      {"weight", {}, nullptr, "How often each row is seen in an epoch; 0.5: half of the rows, others each time.", {}},
      {"sample_by", {}, nullptr, "How plain text becomes rows: document, paragraph or line.", {text}},
      {"field_prompt", {}, &D::field_prompt, "Of prompt_completion.", {prompt_completion, chat}},
      {"field_completion", {}, &D::field_completion, "Of prompt_completion.", {prompt_completion, chat}},
      {"field_text", {"field"}, &D::field_text, "Of text.", {text}},
      {"field_instruction", {}, &D::field_instruction, "Of alpaca.", {alpaca}},
      {"field_input", {}, &D::field_input, "Of alpaca.", {alpaca}},
      {"field_output", {}, &D::field_output, "Of alpaca.", {alpaca}},
      {"field_system", {"system_prompt_field"}, &D::field_system, "Of chat and alpaca.", {chat, alpaca}},
      {"field_messages", {}, &D::field_messages, "Of chat: the list of messages.", {chat}},
      {"field_role", {"message_field_role"}, &D::field_role, "Of a message: whose it is.", {chat}},
      {"field_content", {"message_field_content"}, &D::field_content, "Of a message: its text.", {chat}},
      {"field_tools", {}, &D::field_tools, "Of chat: functions that can be called.", {chat}},
      {"field_train", {"message_field_training"}, &D::field_train, "Of a message: whether it is trained.", {chat}},
      {"field_weight", {}, &D::field_weight, "Of a message: the weight of its loss.", {chat}},
      {"roles", {}, nullptr, "Of chat: {assistant: [bot], user: [visitor]}, names in the data by role.", {chat}}};
  return keys;
}

const DatasetKey* find_dataset_key(std::string_view name) {
  for (const DatasetKey& key : dataset_keys())
    if (key.name == name || std::count(key.aliases.begin(), key.aliases.end(), name) > 0) return &key;
  return nullptr;
}

std::string foreign_dataset_key(std::string_view name) {
  for (const char* whole : {"chat_template", "roles_to_train", "train_on_eos", "train_on_inputs"})
    if (name == whole) return "is one for all datasets: write it beside datasets";
  if (name == "data_files" || name == "name") return "files are named by path, which may be a folder or a pattern";
  if (name == "message_field_training_detail") return "parts of a message cannot be trained apart, only whole messages";
  if (name == "shards" || name == "preprocess_shards") return "a share of the rows is weight: 0.1";
  return {};
}

const std::vector<std::string>& sample_by_names() {
  static const std::vector<std::string> names = {"document", "paragraph", "line"};
  return names;
}

std::string data_name(const std::string& path) {
  std::filesystem::path p = path;
  for (; !p.empty() && p != p.root_path(); p = p.parent_path()) {
    std::filesystem::path file = p.filename();
    if (file.extension() == ".gz" || file.extension() == ".zst") file = file.stem();
    for (const char* ending : {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".md"})
      if (file.extension() == ending) {
        file = file.stem();
        break;
      }
    std::string name;
    for (const char c : file.string())
      if (std::string_view("*?[]{}!").find(c) == std::string_view::npos) name += c;
    if (name.find_first_not_of('.') != std::string::npos) return name;
  }
  return "data";
}

std::string dataset_text(const Recipe::Dataset& d) {
  const Recipe::Dataset usual;
  std::string out =
      str("{path: ", quote_yaml(d.path), ", type: ", dataset_types().at(static_cast<size_t>(d.type)).name);
  if (d.weight != usual.weight) out += ", weight: " + format_number(d.weight);
  if (d.sample_by != usual.sample_by) out += ", sample_by: " + sample_by_names().at(static_cast<size_t>(d.sample_by));
  for (const DatasetKey& key : dataset_keys())
    if (key.text && d.*key.text != usual.*key.text) out += str(", ", key.name, ": ", quote_yaml(d.*key.text));
  if (!d.roles.empty()) {
    // Each role once, with its names in the order of the list.
    std::vector<std::string> done;
    std::string list;
    for (const auto& [unused, role] : d.roles) {
      if (std::count(done.begin(), done.end(), role) > 0) continue;
      done.push_back(role);
      std::string names;
      for (const auto& [name, other] : d.roles)
        if (other == role) names += (names.empty() ? "" : ", ") + quote_yaml(name);
      list += str(list.empty() ? "" : ", ", quote_yaml(role), ": [", names, "]");
    }
    out += str(", roles: {", list, "}");
  }
  return out + "}";
}

}  // namespace bantam
