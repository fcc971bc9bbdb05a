// SPDX-License-Identifier: Apache-2.0
#include "schema.h"

#include <nlohmann/json.hpp>

#include "dataset_keys.h"
#include "key_table.h"

namespace bantam {
namespace {

using Json = nlohmann::ordered_json;

const char* resume_name(Resume resume) {
  switch (resume) {
    case Resume::never:
      return "never";
    case Resume::on_demand:
      return "on_demand";
    case Resume::free:
      return "free";
    case Resume::ignored:
      return "ignored";
  }
  return "?";
}

void add_range(Json& json, const Range& range) {
  if (range.min > -std::numeric_limits<double>::infinity())
    json[range.above_min ? "exclusiveMinimum" : "minimum"] = range.min;
  if (range.max < std::numeric_limits<double>::infinity())
    json[range.below_max ? "exclusiveMaximum" : "maximum"] = range.max;
}

Json enumeration(const std::vector<ChoiceValue>& values) {
  Json names = Json::array();
  for (const ChoiceValue& value : values) {
    if (!available(value.since)) continue;
    // true and false are booleans to an editor's YAML.
    if (value.name == "true" || value.name == "false") {
      names.push_back(value.name == "true");
    } else {
      names.push_back(value.name);
    }
  }
  return Json{{"enum", names}};
}

Json dataset_schema() {
  const Json text = {{"type", "string"}};
  Json properties;
  for (const DatasetKey& key : dataset_keys()) {
    Json json = key.name == "type"        ? enumeration(dataset_types())
                : key.name == "weight"    ? Json{{"type", "number"}, {"exclusiveMinimum", 0}}
                : key.name == "sample_by" ? Json{{"enum", sample_by_names()}}
                : key.name == "roles"     ? Json{{"type", "object"}}
                                          : text;
    json["description"] = key.help;
    properties[key.name] = json;
    for (const std::string& alias : key.aliases) properties[alias] = json;
  }
  properties["message_property_mappings"] = {{"type", "object"},
                                             {"description", "Axolotl's: {role: from, content: value}."}};
  properties["split"] = {{"const", "train"}};
  properties["ds_type"] = text;
  const Json entry = {
      {"type", "object"}, {"properties", properties}, {"required", {"path"}}, {"additionalProperties", false}};
  const Json item = {{"anyOf", Json::array({text, entry})}};
  return {{"anyOf", Json::array({text, entry, {{"type", "array"}, {"items", item}}})}};
}

Json type_schema(const KeySpec& key) {
  Json json;
  switch (key.type) {
    case KeyType::boolean:
      json["type"] = "boolean";
      break;
    case KeyType::integer:
      json["type"] = "integer";
      break;
    case KeyType::number:
    case KeyType::steps:
      json["type"] = "number";
      break;
    case KeyType::size:
      json["type"] = Json::array({"integer", "string"});
      break;
    case KeyType::choice:
      json = enumeration(key.values);
      for (const ChoiceValue& v : key.values)
        if (v.numbered) json = {{"anyOf", Json::array({json, {{"pattern", "^" + v.name + ":[0-9]+$"}}})}};
      if (std::any_of(key.values.begin(), key.values.end(), [](const ChoiceValue& v) { return v.name == "every_n"; })) {
        const Json number = {{"type", "integer"}, {"minimum", 1}};
        json = {{"anyOf", Json::array({json,
                                       {{"type", "object"},
                                        {"properties", {{"every_n", number}}},
                                        {"required", Json::array({"every_n"})},
                                        {"additionalProperties", false}}})}};
      }
      break;
    case KeyType::text:
      json["type"] = "string";
      break;
    case KeyType::path:
      json["type"] = key.words.empty() ? Json("string") : Json::array({"string", "boolean"});
      break;
    case KeyType::list:
      json["type"] = Json::array({"array", "string"});
      json["items"] = key.values.empty() ? Json{{"type", "string"}} : enumeration(key.values);
      break;
    case KeyType::targets:
      json["type"] = Json::array({"array", "string"});
      json["items"] = {{"type", "string"}};
      break;
    case KeyType::datasets:
      json = dataset_schema();
      break;
    case KeyType::save:
      json["type"] = "object";
      json["properties"] = {{"save", {{"type", "array"}, {"items", {{"type", "string"}}}}}};
      break;
    case KeyType::opaque:
      break;
  }
  if (key.type == KeyType::integer || key.type == KeyType::number || key.type == KeyType::steps)
    add_range(json, key.range);
  if (!key.word.empty() && json.contains("type") && json["type"] != "string") {
    json = {{"anyOf", Json::array({json, {{"const", key.word}}})}};
  }
  return json;
}

Json key_schema(const KeySpec& key) {
  Json json = type_schema(key);
  json["description"] = key.help;
  if (const std::string usual = default_text(key); !usual.empty()) json["default"] = usual;
  Json aliases = Json::array();
  for (const Alias& alias : key.aliases) aliases.push_back(alias.name);
  json["x-section"] = key.section;
  json["x-aliases"] = aliases;
  json["x-since"] = name_of(key.since);
  json["x-available"] = key.has_field() && available(key.since);
  json["x-required"] = key.required;
  json["x-changes-results"] = key.changes_results;
  json["x-resume"] = resume_name(key.resume);
  return json;
}

}  // namespace

std::string config_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Bantam recipe"},
               {"description", "Sections are for reading: each key may also stand at the top."},
               {"type", "object"}};
  Json& properties = root["properties"];
  Json& keys = root["$defs"];
  for (const std::string& section : sections()) {
    Json inside;
    for (const KeySpec& key : key_table()) {
      if (key.section == section) inside[key.name] = {{"$ref", "#/$defs/" + key.name}};
    }
    // `model` and `data` are also other names of base_model and datasets.
    properties[section] = {{"properties", inside}};
    if (section != "model" && section != "data") properties[section]["type"] = "object";
  }
  for (const KeySpec& key : key_table()) {
    keys[key.name] = key_schema(key);
    properties[key.name] = {{"$ref", "#/$defs/" + key.name}};
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace bantam
