// SPDX-License-Identifier: Apache-2.0
// What the rows of the key table are written with. Internal to keys_*.cc.
#pragma once
#include <tuple>
#include <type_traits>

#include "key_table.h"

namespace bantam {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

/// Ties a row to a field of Recipe: enums travel as the name of their value, empty optionals as the key's word.
template <auto Member>
struct Field {
  using T = std::remove_cvref_t<decltype(std::declval<Recipe&>().*Member)>;

  static void set(Recipe& recipe, const KeySpec& key, const KeyValue& value) {
    T& field = recipe.*Member;
    if constexpr (std::is_enum_v<T>) {
      for (size_t i = 0; i < key.values.size(); ++i) {
        if (key.values[i].name == std::get<std::string>(value)) field = static_cast<T>(i);
      }
    } else if constexpr (IsOptional<T>::value) {
      if (std::holds_alternative<std::monostate>(value)) {
        field.reset();
      } else {
        field = std::get<typename T::value_type>(value);
      }
    } else if constexpr (std::is_same_v<T, std::string>) {
      field = std::holds_alternative<std::monostate>(value) ? std::string{} : std::get<std::string>(value);
    } else {
      field = std::get<T>(value);
    }
  }
  static KeyValue get(const Recipe& recipe, const KeySpec& key) {
    const T& field = recipe.*Member;
    if constexpr (std::is_enum_v<T>) {
      return key.values.at(static_cast<size_t>(field)).name;
    } else if constexpr (IsOptional<T>::value) {
      return field ? KeyValue(*field) : KeyValue();
    } else if constexpr (std::is_same_v<T, std::string>) {
      return field.empty() && !key.word.empty() ? KeyValue() : KeyValue(field);
    } else {
      return field;
    }
  }
};

template <auto Member>
KeySpec with_field(KeySpec key) {
  key.set = Field<Member>::set;
  key.get = Field<Member>::get;
  return key;
}

/// gradient_checkpointing: its mode, and for every_n the number with it, as "every_n: 4".
inline KeySpec with_every_n(KeySpec key) {
  key.set = [](Recipe& recipe, const KeySpec& k, const KeyValue& value) {
    const std::string& text = std::get<std::string>(value);
    const size_t colon = text.find(':');
    Field<&Recipe::gradient_checkpointing>::set(recipe, k, text.substr(0, colon));
    if (colon != std::string::npos) recipe.every_n = std::stoll(text.substr(colon + 1));
  };
  key.get = [](const Recipe& recipe, const KeySpec& k) -> KeyValue {
    const KeyValue name = Field<&Recipe::gradient_checkpointing>::get(recipe, k);
    if (recipe.gradient_checkpointing != Recipe::Checkpointing::every_n) return name;
    return "every_n: " + std::to_string(recipe.every_n);
  };
  return key;
}

inline Range at_least(double min) {
  return {.min = min};
}
inline Range above(double min) {
  return {.min = min, .above_min = true};
}
inline Range from_to(double min, double max) {
  return {.min = min, .max = max};
}
inline Range from_below(double min, double max) {
  return {.min = min, .max = max, .below_max = true};
}

using KeyList = std::vector<KeySpec>;
inline constexpr bool kNoResult = false;

void add_model_keys(KeyList& t);     ///< model, quantization, lora
void add_data_keys(KeyList& t);      ///< data, memory
void add_training_keys(KeyList& t);  ///< training, eval, output, export

}  // namespace bantam
