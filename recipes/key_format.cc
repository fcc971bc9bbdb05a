// SPDX-License-Identifier: Apache-2.0
// What can be said about a row of the table: its names, what it takes, its values as text.
#include <algorithm>

#include "../kernels/error.h"
#include "dataset_keys.h"
#include "key_table.h"
#include "values.h"

namespace bantam {
namespace {

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += between;
    out += part;
  }
  return out;
}

std::string bound(const KeySpec& key, double value) {
  return key.type == KeyType::size ? format_size(static_cast<int64_t>(value)) : format_number(value);
}

std::string range_text(const KeySpec& key) {
  const Range& r = key.range;
  const bool low = r.min > -std::numeric_limits<double>::infinity();
  const bool high = r.max < std::numeric_limits<double>::infinity();
  if (low && high && !r.above_min && !r.below_max) {
    if (r.min == r.max) return str(" equal to ", bound(key, r.min));
    return str(" from ", bound(key, r.min), " to ", bound(key, r.max));
  }
  std::string out;
  if (low) out += str(r.above_min ? " > " : " >= ", bound(key, r.min));
  if (low && high) out += " and";
  if (high) out += str(r.below_max ? " < " : " <= ", bound(key, r.max));
  return out;
}

std::vector<std::string> names_of(const std::vector<ChoiceValue>& values) {
  std::vector<std::string> names;
  for (const ChoiceValue& value : values) {
    if (!available(value.since)) continue;
    names.push_back(value.name);
    if (value.numbered) names.push_back(value.name + ":N");
  }
  return names;
}

}  // namespace

const std::vector<std::string>& sections() {
  static const std::vector<std::string> names = {"model",    "quantization", "lora",   "data",  "memory",
                                                 "training", "eval",         "output", "export"};
  return names;
}

std::string_view name_of(Since since) {
  switch (since) {
    case Since::main:
      return "main";
    case Since::plan:
      return "plan";
    case Since::data:
      return "data";
    case Since::models:
      return "models";
    case Since::rel:
      return "rel";
    case Since::cuda:
      return "cuda";
  }
  return "?";
}

const KeySpec* find_key(std::string_view name) {
  for (const KeySpec& key : key_table()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const KeySpec* find_key_or_alias(std::string_view name, const Alias*& alias) {
  alias = nullptr;
  if (const KeySpec* key = find_key(name)) return key;
  for (const KeySpec& key : key_table()) {
    for (const Alias& candidate : key.aliases) {
      if (candidate.name == name) {
        alias = &candidate;
        return &key;
      }
    }
  }
  return nullptr;
}

std::string expected(const KeySpec& key) {
  const std::string or_word = key.word.empty() ? "" : " or " + key.word;
  switch (key.type) {
    case KeyType::boolean:
      return "true or false (also yes, no, on, off)";
    case KeyType::integer:
      return "a whole number" + range_text(key) + or_word;
    case KeyType::number:
      return "a number" + range_text(key) + or_word;
    case KeyType::size:
      return "a size" + range_text(key) + " such as 512MiB or 10GB" + or_word;
    case KeyType::steps:
      return "a count or a fraction below 1," + range_text(key) + or_word;
    case KeyType::choice:
      return "one of " + join(names_of(key.values), ", ");
    case KeyType::text:
      return "text" + or_word;
    case KeyType::path:
      return key.words.empty() ? "a path" : "a path, " + join(key.words, " or ");
    case KeyType::list:
      return key.values.empty() ? "a list of names" : "a list of " + join(names_of(key.values), ", ");
    case KeyType::targets:
      return "all-linear, a list of module names or a regular expression";
    case KeyType::datasets:
      return "a list of {path, type}, or paths";
    case KeyType::save:
      return "{save: [value names]}";
    case KeyType::opaque:
      return key.later_default;
  }
  return {};
}

std::string format_value(const KeySpec& key, const KeyValue& value) {
  struct Visitor {
    const KeySpec& key;
    std::string operator()(std::monostate) const { return key.word; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return key.type == KeyType::size ? format_size(v) : std::to_string(v); }
    std::string operator()(double v) const { return format_number(v); }
    std::string operator()(const std::string& v) const {
      if (key.type == KeyType::choice && v.find(": ") != std::string::npos) return "{" + v + "}";
      const bool plain = key.type == KeyType::choice || std::count(key.words.begin(), key.words.end(), v) > 0;
      return plain ? v : quote_yaml(v);
    }
    std::string operator()(const std::vector<std::string>& v) const {
      if (key.type == KeyType::targets && v.size() == 1) return quote_yaml(v[0]);
      std::vector<std::string> parts;
      for (const std::string& item : v) parts.push_back(quote_yaml(item));
      const std::string list = "[" + join(parts, ", ") + "]";
      return key.type == KeyType::save ? "{save: " + list + "}" : list;
    }
    std::string operator()(const std::vector<Recipe::Dataset>& v) const {
      std::vector<std::string> parts;
      for (const Recipe::Dataset& item : v) parts.push_back(dataset_text(item));
      return "[" + join(parts, ", ") + "]";
    }
  };
  return std::visit(Visitor{key}, value);
}

std::string default_text(const KeySpec& key) {
  if (key.required) return {};
  if (!key.has_field()) return key.later_default;
  return format_value(key, key.get(Recipe{}, key));
}

}  // namespace bantam
