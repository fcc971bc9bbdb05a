// SPDX-License-Identifier: Apache-2.0
// The value of `datasets`.
#include <algorithm>
#include <functional>

#include "../kernels/error.h"
#include "dataset_keys.h"
#include "parse_value.h"
#include "values.h"

namespace bantam {
namespace {

using Kind = YamlNode::Kind;

// One entry of the list; problems go to the reader with the path below the entry.
class DatasetReader {
 public:
  using Report = std::function<void(const YamlNode& at, const std::string& path, std::string message)>;
  DatasetReader(Recipe::Dataset& out, Report report) : out_(out), report_(std::move(report)) {}

  bool good = true;

  void field(const YamlNode& name, const YamlNode& value) {
    const std::string& field = name.text;
    if (field == "message_property_mappings") return mappings(value);
    if (field == "split" || field == "ds_type") return without_effect(field, value);
    if (const std::string why = foreign_dataset_key(field); !why.empty())
      return bad(name, field, "known elsewhere; it " + why);
    const DatasetKey* key = find_dataset_key(field);
    if (key == nullptr) return unknown(name);
    if (!once(name, *key)) return;
    if (key->name == "weight") return weight(value);
    if (key->name == "sample_by") return sample_by(value);
    if (key->name == "roles") return roles(value);
    text(value, field, key->text != nullptr ? out_.*key->text : out_.path,
         key->text != nullptr ? "a field's name" : "a path");
  }

 private:
  void bad(const YamlNode& at, const std::string& path, std::string message) {
    good = false;
    report_(at, "." + path, std::move(message));
  }

  // `field` beside field_text: two names of one key.
  bool once(const YamlNode& name, const DatasetKey& key) {
    for (const auto& [other, line] : seen_) {
      if (other != &key) continue;
      bad(name, name.text, str("found a second value for ", key.name, ", the first is on line ", line));
      return false;
    }
    seen_.emplace_back(&key, name.line);
    return true;
  }

  void text(const YamlNode& value, const std::string& path, std::string& out, const char* what) {
    if (value.kind == Kind::scalar && !value.text.empty()) {
      out = value.text;
    } else {
      bad(value, path, str("found ", describe(value), ", expected ", what));
    }
  }

  void weight(const YamlNode& value) {
    const auto number = value.kind == Kind::scalar ? parse_number(value.text) : std::nullopt;
    if (!number || !(*number > 0) || *number > 1000) {
      return bad(value, "weight", str("found ", describe(value), ", expected a number > 0 and <= 1000"));
    }
    out_.weight = *number;
  }

  void sample_by(const YamlNode& value) {
    const auto& names = sample_by_names();
    const auto found = value.kind == Kind::scalar ? std::find(names.begin(), names.end(), value.text) : names.end();
    if (found == names.end()) {
      return bad(value, "sample_by", str("found ", describe(value), ", expected one of document, paragraph, line"));
    }
    out_.sample_by = static_cast<SampleBy>(found - names.begin());
  }

  // {assistant: [bot, model], user: visitor}
  void roles(const YamlNode& value) {
    if (value.kind != Kind::map) {
      return bad(value, "roles", str("found ", describe(value), ", expected {role: [names in the data]}"));
    }
    for (const auto& [role, names] : value.entries) {
      const std::vector<YamlNode> list = names.kind == Kind::sequence ? names.items : std::vector<YamlNode>{names};
      for (const YamlNode& name : list) {
        std::string text_of;
        text(name, "roles." + role.text, text_of, "a role's name in the data");
        const auto same = [&](const auto& pair) { return pair.first == text_of && pair.second != role.text; };
        if (std::any_of(out_.roles.begin(), out_.roles.end(), same)) {
          bad(name, "roles." + role.text, str("found ", show(text_of), ", which is another role already"));
        } else if (!text_of.empty()) {
          out_.roles.emplace_back(text_of, role.text);
        }
      }
    }
  }

  // Axolotl's: what of a message is called how.
  void mappings(const YamlNode& value) {
    const std::string here = "message_property_mappings";
    if (value.kind != Kind::map)
      return bad(value, here, str("found ", describe(value), ", expected {role: ..., content: ...}"));
    for (const auto& [property, name] : value.entries) {
      const bool known = property.text == "role" || property.text == "content";
      if (!known && name.text != property.text) {
        bad(property, here + "." + property.text,
            "only role and content can be named; other properties keep their names");
        continue;
      }
      if (!known) continue;
      const DatasetKey& key = *find_dataset_key("field_" + property.text);
      if (once(property, key)) text(name, here + "." + property.text, out_.*key.text, "a field's name");
    }
  }

  // What every file has anyway is fine; anything else would not happen.
  void without_effect(const std::string& field, const YamlNode& value) {
    const std::vector<std::string> usual =
        field == "split" ? std::vector<std::string>{"train"} : std::vector<std::string>{"json", "csv", "text"};
    if (value.kind == Kind::scalar && std::count(usual.begin(), usual.end(), value.text) > 0) return;
    bad(value, field,
        field == "split"
            ? str("found ", describe(value), ": a local file has one split, train; name another file instead")
            : str("found ", describe(value),
                  ", expected json, csv or text; a file's format is told from its name and content"));
  }

  void unknown(const YamlNode& name) {
    std::vector<std::string> names;
    for (const DatasetKey& key : dataset_keys()) names.push_back(key.name);
    const std::string near = nearest(name.text, names);
    bad(name, name.text, near.empty() ? "unknown key" : str("unknown key, did you mean ", near, "?"));
  }

  Recipe::Dataset& out_;
  Report report_;
  std::vector<std::pair<const DatasetKey*, int>> seen_;
};

}  // namespace

std::optional<KeyValue> ValueReader::read_datasets(const KeySpec& key, const YamlNode& node) {
  std::vector<Recipe::Dataset> out;
  bool good = true;
  if (node.kind == Kind::sequence) {
    for (size_t i = 0; i < node.items.size(); ++i) {
      good = read_dataset(key, node.items[i], str("[", i, "]"), out.emplace_back()) && good;
    }
  } else {
    good = read_dataset(key, node, "", out.emplace_back());
  }
  if (good && out.empty() && key.required) {
    return issue(node, str("found an empty list, expected ", expected(key)));
  }
  if (!good) return std::nullopt;
  return out;
}

bool ValueReader::read_dataset(const KeySpec& key, const YamlNode& node, const std::string& suffix,
                               Recipe::Dataset& out) {
  if (node.kind == Kind::scalar && !node.text.empty()) {
    out.path = node.text;
    return true;
  }
  if (node.kind != Kind::map) {
    issue(node, str("found ", describe(node), ", expected {path, type} or a path"), suffix);
    return false;
  }
  DatasetReader reader(out, [&](const YamlNode& at, const std::string& path, std::string message) {
    issue(at, std::move(message), suffix + path);
  });
  for (const auto& [name, value] : node.entries) {
    if (value.kind == Kind::null && name.text != "path") continue;
    if (name.text == "type") {
      reader.good = read_dataset_type(value, suffix, out) && reader.good;
    } else {
      reader.field(name, value);
    }
  }
  if (reader.good && out.path.empty()) {
    issue(node, str("missing, expected a path in each of ", key.name), suffix + ".path");
    return false;
  }
  return reader.good;
}

bool ValueReader::read_dataset_type(const YamlNode& value, const std::string& suffix, Recipe::Dataset& out) {
  const KeySpec& type = *find_key("type");
  if (value.kind != Kind::scalar) {
    issue(value, str("found ", describe(value), ", expected ", expected(type)), suffix + ".type");
    return false;
  }
  const size_t before = issues.size();
  const auto chosen = read_choice(type, value, translate(type, value.text));
  for (size_t i = before; i < issues.size(); ++i) issues[i].suffix = suffix + ".type";
  if (!chosen) return false;
  for (size_t i = 0; i < dataset_types().size(); ++i) {
    if (dataset_types()[i].name == std::get<std::string>(*chosen)) out.type = static_cast<DatasetType>(i);
  }
  return true;
}

}  // namespace bantam
