// SPDX-License-Identifier: Apache-2.0
#include "parse_value.h"

#include <algorithm>

#include "../kernels/error.h"
#include "foreign_keys.h"
#include "values.h"

namespace bantam {
namespace {

using Kind = YamlNode::Kind;

bool in_range(const Range& r, double v) {
  if (r.above_min ? v <= r.min : v < r.min) return false;
  return !(r.below_max ? v >= r.max : v > r.max);
}

std::string found_expected(const KeySpec& key, const std::string& found) {
  return str("found ", found, ", expected ", expected(key));
}

/// Names and their separators only; anything else makes a regular expression.
bool names_only(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || c == ',' || c == ' ';
  });
}

}  // namespace

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "nothing";
    case Kind::scalar:
      return show(node.text);
    case Kind::sequence:
      return "a list";
    case Kind::map:
      return "a mapping";
  }
  return {};
}

bool switched_off(const YamlNode& node) {
  if (node.kind == Kind::scalar) {
    const auto flag = parse_bool(node.text);
    const auto number = parse_number(node.text);
    return node.text.empty() || node.text == "none" || node.text == "None" || (flag && !*flag) ||
           (number && *number == 0);
  }
  return node.items.empty() && node.entries.empty();
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t comma = std::min(text.find(',', start), text.size());
    std::string name = text.substr(start, comma - start);
    name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!name.empty()) names.push_back(std::move(name));
    start = comma + 1;
  }
  return names;
}

std::nullopt_t ValueReader::issue(const YamlNode& node, std::string message, std::string suffix) {
  issues.push_back({node.line, node.column, std::move(suffix), std::move(message)});
  return std::nullopt;
}

std::string ValueReader::translate(const KeySpec& key, const std::string& text) {
  for (const auto& [foreign, ours] : key.synonyms) {
    if (foreign != text) continue;
    synonyms.push_back(str(key.name, " ", text, ours.empty() ? " (without effect here)" : str(" (here ", ours, ")")));
    return ours;
  }
  return text;
}

bool ValueReader::refused(const KeySpec& key, const YamlNode& node, const std::string& text) {
  for (const Refusal& refusal : key.refusals) {
    if (!matches_pattern(refusal.pattern, text)) continue;
    issue(node, str("found ", show(text), ": ", refusal.reason));
    return true;
  }
  return false;
}

std::optional<KeyValue> ValueReader::read(const KeySpec& key, const YamlNode& node) {
  switch (key.type) {
    case KeyType::list:
      return read_list(key, node);
    case KeyType::targets:
      return read_targets(key, node);
    case KeyType::datasets:
      return read_datasets(key, node);
    case KeyType::save:
      return read_save(key, node);
    case KeyType::opaque:
      return issue(node, str("found ", describe(node), ": ", kNotAvailable));
    case KeyType::choice:
      if (node.kind == Kind::map && node.entries.size() == 1)
        return read_with_number(key, node, node.entries[0].first.text, node.entries[0].second.text);
      break;
    default:
      break;
  }
  if (node.kind != Kind::scalar) return issue(node, found_expected(key, describe(node)));
  return read_scalar(key, node);
}

std::optional<KeyValue> ValueReader::read_scalar(const KeySpec& key, const YamlNode& node) {
  std::string text = node.text;
  // A switch among the words of a key may be spelled as any boolean.
  const auto knows = [&](const char* word) {
    return std::count(key.words.begin(), key.words.end(), word) > 0 ||
           std::any_of(key.values.begin(), key.values.end(), [&](const ChoiceValue& v) { return v.name == word; });
  };
  if (knows("false") || key.type == KeyType::choice) {
    if (const auto flag = parse_bool(text); flag && (knows("false") || knows("true"))) text = *flag ? "true" : "false";
  }
  if (refused(key, node, text)) return std::nullopt;
  text = translate(key, text);
  if (!key.word.empty() && text == key.word) return KeyValue();
  const std::string complaint = found_expected(key, show(node.text));
  switch (key.type) {
    case KeyType::boolean:
      if (const auto v = parse_bool(text)) return *v;
      break;
    case KeyType::integer:
      if (const auto v = parse_integer(text); v && in_range(key.range, static_cast<double>(*v))) return *v;
      break;
    case KeyType::size:
      if (const auto v = parse_size(text); v && in_range(key.range, static_cast<double>(*v))) return *v;
      break;
    case KeyType::number:
      if (const auto v = parse_number(text); v && in_range(key.range, *v)) return *v;
      break;
    case KeyType::steps: {
      const auto v = parse_number(text);
      if (v && in_range(key.range, *v) &&
          (*v < 1 || (*v == static_cast<double>(static_cast<int64_t>(std::min(*v, 1e15)))))) {
        return *v;
      }
      break;
    }
    case KeyType::choice: {
      // As a flag: every_n:4 or every_n=4.
      const size_t sign = text.find_first_of(":=");
      if (sign != std::string::npos && text.starts_with("every_n")) {
        std::string number = text.substr(sign + 1);
        number.erase(0, std::min(number.find_first_not_of(' '), number.size()));
        return read_with_number(key, node, text.substr(0, sign), number);
      }
      return read_choice(key, node, text);
    }
    case KeyType::text:
    case KeyType::path:
      if (!text.empty()) return text;
      break;
    default:
      break;
  }
  return issue(node, complaint);
}

// gradient_checkpointing: {every_n: k}
std::optional<KeyValue> ValueReader::read_with_number(const KeySpec& key, const YamlNode& node, const std::string& name,
                                                      const std::string& number) {
  const bool known = name == "every_n" && std::any_of(key.values.begin(), key.values.end(),
                                                      [&](const ChoiceValue& v) { return v.name == name; });
  if (!known) return issue(node, found_expected(key, show(name + ": " + number)));
  const auto v = parse_integer(number);
  if (!v || *v < 1 || *v > 1 << 20)
    return issue(node,
                 str("found ", show(name + ": " + number), ", expected every_n: a whole number of layers, from 1"));
  return KeyValue(name + ": " + std::to_string(*v));
}

std::optional<KeyValue> ValueReader::read_choice(const KeySpec& key, const YamlNode& node, std::string text) {
  std::vector<std::string> names;
  if (text == "every_n")
    return issue(node, str("found ", show(text), ", expected {every_n: layers}, for example {every_n: 2}"));
  for (const ChoiceValue& value : key.values) {
    if (value.name == text) {
      if (available(value.since) || !key.has_field()) return text;
      return issue(node, str("found ", show(text), ": ", kNotAvailable, " (", expected(key), ")"));
    }
    if (value.numbered && text.starts_with(value.name + ":")) {
      const auto number = parse_integer(text.substr(value.name.size() + 1));
      if (number && *number >= 0 && *number < 1024) return text;
    }
    if (available(value.since)) names.push_back(value.name);
  }
  const std::string near = nearest(text, names);
  return issue(node, found_expected(key, show(text)) + (near.empty() ? "" : str("; did you mean ", near, "?")));
}

std::optional<KeyValue> ValueReader::read_list(const KeySpec& key, const YamlNode& node) {
  std::vector<YamlNode> items;
  if (node.kind == Kind::scalar) {
    for (std::string& name : split_names(node.text)) {
      YamlNode item = node;
      item.text = std::move(name);
      items.push_back(std::move(item));
    }
  } else if (node.kind == Kind::sequence) {
    items = node.items;
  } else {
    return issue(node, found_expected(key, describe(node)));
  }
  std::vector<std::string> out;
  bool good = true;
  for (const YamlNode& item : items) {
    if (item.kind != Kind::scalar) {
      issue(item, str("found ", describe(item), ", expected a name"));
      good = false;
      continue;
    }
    const std::string text = translate(key, item.text);
    if (text.empty()) continue;
    if (!key.values.empty() && !read_choice(key, item, text)) good = false;
    out.push_back(text);
  }
  if (!good) return std::nullopt;
  return out;
}

std::optional<KeyValue> ValueReader::read_targets(const KeySpec& key, const YamlNode& node) {
  if (node.kind == Kind::scalar) {
    const std::string text = translate(key, node.text);
    std::vector<std::string> names = names_only(text) ? split_names(text) : std::vector<std::string>{text};
    if (!names.empty()) return names;
  } else if (node.kind == Kind::sequence && !node.items.empty()) {
    return read_list(key, node);
  }
  return issue(node, found_expected(key, describe(node)));
}

std::optional<KeyValue> ValueReader::read_save(const KeySpec& key, const YamlNode& node) {
  if (node.kind != Kind::map) return issue(node, found_expected(key, describe(node)));
  const YamlNode* names = nullptr;
  for (const auto& [name, value] : node.entries) {
    if (name.text == "save") {
      names = &value;
    } else {
      return issue(name, "unknown key, did you mean save?", "." + name.text);
    }
  }
  if (names == nullptr || (names->kind != Kind::sequence && names->kind != Kind::scalar) || switched_off(*names)) {
    return issue(names ? *names : node, found_expected(key, names ? describe(*names) : "no save"));
  }
  return read_list(key, *names);
}

}  // namespace bantam
