// SPDX-License-Identifier: Apache-2.0
#include "value.h"

#include <nlohmann/json.hpp>

#include "object.h"
#include "ops.h"

namespace bantam {
namespace {

constexpr size_t kIndexedFrom = 12;  // entries; fewer are found faster one by one

int depth_of(const JinjaValue& v) {
  if (v.is(JinjaValue::Kind::sequence)) return as_sequence(v).depth;
  if (v.is(JinjaValue::Kind::dict)) return as_dict(v).depth;
  return 0;
}

uint16_t deeper(int depth, const JinjaValue& v) {
  depth = std::max(depth, 1 + depth_of(v));
  if (depth > kJinjaMostLevels) jinja_data_fault(str("values nested deeper than ", kJinjaMostLevels, " levels"));
  return static_cast<uint16_t>(depth);
}

JinjaValue convert(const nlohmann::ordered_json& json, int level) {
  if (level > kJinjaMostLevels) jinja_data_fault(str("values nested deeper than ", kJinjaMostLevels, " levels"));
  switch (json.type()) {
    case nlohmann::json::value_t::null:
      return {};
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX}) jinja_data_fault(str("whole number too large: ", json.dump()));
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return JinjaValue(json.get_ref<const std::string&>());
    case nlohmann::json::value_t::array: {
      JinjaValue::List items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, level + 1));
      return JinjaValue::list(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      JinjaValue::Entries entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) entries.emplace_back(JinjaValue(key), convert(value, level + 1));
      return JinjaValue::dict(std::move(entries));
    }
    default:
      jinja_data_fault("a JSON value that is none");
  }
}

}  // namespace

JinjaValue::JinjaValue(std::string text) : kind_(Kind::string) {
  auto* object = new JinjaString;
  object->references = 1;
  object->text = std::move(text);
  bits_.o = object;
}

JinjaValue::JinjaValue(Kind kind, JinjaObject* object) : kind_(kind) {
  bits_.o = object;
  acquire();
}

JinjaValue JinjaValue::missing() {
  JinjaValue v;
  v.kind_ = Kind::missing;
  return v;
}

JinjaValue JinjaValue::list(List items) {
  return jinja_sequence(SequenceKind::list, std::move(items));
}

JinjaValue JinjaValue::dict(Entries entries) {
  auto owner = std::make_unique<JinjaDict>();
  auto& kept = owner->entries;
  const bool indexed = entries.size() >= kIndexedFrom;
  kept.reserve(entries.size());  // the index points at texts that their values own, which stay where they are
  for (auto& [key, value] : entries) {
    owner->depth = deeper(owner->depth, key);
    owner->depth = deeper(owner->depth, value);
    JinjaValue* old = nullptr;
    if (indexed && key.is(Kind::string)) {
      const auto it = owner->index.find(key.text());
      if (it != owner->index.end()) old = &kept[it->second].second;
    } else {
      for (auto& entry : kept)
        if (jinja_same_key(entry.first, key)) old = &entry.second;
    }
    if (old != nullptr) {
      *old = std::move(value);
      continue;
    }
    if (indexed && key.is(Kind::string)) owner->index.emplace(key.text(), static_cast<uint32_t>(kept.size()));
    kept.emplace_back(std::move(key), std::move(value));
  }
  return {Kind::dict, owner.release()};
}

JinjaValue JinjaValue::from_json(const nlohmann::ordered_json& json) {
  return convert(json, 0);
}

const std::string& JinjaValue::text() const {
  return as_string(*this).text;
}

const JinjaValue::List& JinjaValue::items() const {
  return as_sequence(*this).items;
}

const JinjaValue::Entries& JinjaValue::entries() const {
  return as_dict(*this).entries;
}

const JinjaValue* JinjaValue::find(std::string_view key) const {
  const auto& dict = as_dict(*this);
  if (dict.entries.size() >= kIndexedFrom && !dict.index.empty()) {
    const auto it = dict.index.find(key);
    return it == dict.index.end() ? nullptr : &dict.entries[it->second].second;
  }
  for (const auto& [k, v] : dict.entries)
    if (k.is(Kind::string) && k.text() == key) return &v;
  return nullptr;
}

const JinjaValue* JinjaNamespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

void JinjaNamespace::set(std::string_view name, JinjaValue value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

JinjaValue jinja_markup(std::string text, bool markup) {
  auto* object = new JinjaString;
  object->text = std::move(text);
  object->markup = markup;
  return {JinjaValue::Kind::string, object};
}

JinjaValue jinja_sequence(SequenceKind kind, JinjaValue::List items) {
  auto owner = std::make_unique<JinjaSequence>();
  owner->kind = kind;
  for (const auto& item : items) owner->depth = deeper(owner->depth, item);
  owner->items = std::move(items);
  return {JinjaValue::Kind::sequence, owner.release()};
}

JinjaValue jinja_method(const JinjaValue& receiver, std::string_view static_name) {
  auto* object = new JinjaCallable;
  object->kind = JinjaCallable::Kind::method;
  object->receiver = receiver;
  object->name = static_name;
  return {JinjaValue::Kind::callable, object};
}

JinjaValue::List jinja_bind(std::string_view function, JinjaArguments& arguments,
                            const std::vector<std::string_view>& parameters) {
  if (arguments.positional.size() > parameters.size()) {
    jinja_data_fault(
        str(function, "() takes at most ", parameters.size(), " arguments (", arguments.positional.size(), " given)"));
  }
  JinjaValue::List out = std::move(arguments.positional);
  out.resize(parameters.size(), JinjaValue::missing());
  for (auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i] != name) ++i;
    if (i == parameters.size()) jinja_data_fault(str(function, "() got an unexpected keyword argument '", name, "'"));
    if (!out[i].is(JinjaValue::Kind::missing)) {
      jinja_data_fault(str(function, "() got multiple values for argument '", name, "'"));
    }
    out[i] = std::move(value);
  }
  return out;
}

}  // namespace bantam
