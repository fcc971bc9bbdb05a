// SPDX-License-Identifier: Apache-2.0
// A node of the tree to a value of a key. The key decides the type, never the look of the text.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "key_table.h"
#include "yaml_tree.h"

namespace bantam {

struct ValueIssue {
  int line = 0, column = 0;
  std::string suffix;  ///< path below the key: "[0].type"
  std::string message;
};

struct ValueReader {
  std::vector<ValueIssue> issues;
  std::vector<std::string> synonyms;  ///< "adamw_torch (here adamw)", for one notice

  /// Nothing when the node is not a value of the key; `issues` says why.
  std::optional<KeyValue> read(const KeySpec& key, const YamlNode& node);

 private:
  std::optional<KeyValue> read_scalar(const KeySpec& key, const YamlNode& node);
  std::optional<KeyValue> read_with_number(const KeySpec& key, const YamlNode& node, const std::string& name,
                                           const std::string& number);
  std::optional<KeyValue> read_choice(const KeySpec& key, const YamlNode& node, std::string text);
  std::optional<KeyValue> read_list(const KeySpec& key, const YamlNode& node);
  std::optional<KeyValue> read_targets(const KeySpec& key, const YamlNode& node);
  std::optional<KeyValue> read_datasets(const KeySpec& key, const YamlNode& node);
  std::optional<KeyValue> read_save(const KeySpec& key, const YamlNode& node);
  bool read_dataset(const KeySpec& key, const YamlNode& node, const std::string& suffix, Recipe::Dataset& out);
  bool read_dataset_type(const YamlNode& value, const std::string& suffix, Recipe::Dataset& out);
  std::string translate(const KeySpec& key, const std::string& text);
  bool refused(const KeySpec& key, const YamlNode& node, const std::string& text);
  std::nullopt_t issue(const YamlNode& node, std::string message, std::string suffix = {});
};

/// "a list", "nothing", "\"abc\"": a node as messages name it.
std::string describe(const YamlNode& node);
/// null, false, none, off, 0, an empty list or mapping.
bool switched_off(const YamlNode& node);
/// Names separated by commas, spaces around them dropped.
std::vector<std::string> split_names(const std::string& text);

inline constexpr char kNotAvailable[] = "known, not available in this version";

}  // namespace bantam
