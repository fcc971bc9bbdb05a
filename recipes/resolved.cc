// SPDX-License-Identifier: Apache-2.0
#include "resolved.h"

#include "../kernels/error.h"
#include "../kernels/hash.h"

namespace bantam {
namespace {

/// Keys that only stand for another key are not written.
bool written(const KeySpec& key, const Recipe& recipe) {
  if (!key.has_field()) return false;
  if (key.name == "effective_batch_size") return recipe.effective_batch_size.has_value();
  if (key.name == "selective_checkpointing") return !recipe.selective_checkpointing.empty();
  if (key.name == "gradient_accumulation_steps") return !recipe.effective_batch_size.has_value();
  return true;
}

std::string value_of(const KeySpec& key, const Recipe& recipe) {
  return format_value(key, key.get(recipe, key));
}

}  // namespace

std::string to_yaml(const Recipe& recipe, const std::string& comment) {
  // Without 4 bits there is nothing to quantise twice; load_recipe refuses to be told so.
  if (recipe.quant_type == Recipe::QuantType::none && recipe.double_quant) {
    Recipe plain = recipe;
    plain.double_quant = false;
    return to_yaml(plain, comment);
  }
  std::string out;
  if (!comment.empty()) out += "# " + comment + "\n";
  for (const std::string& section : sections()) {
    std::string body;
    for (const KeySpec& key : key_table()) {
      if (key.section != section || !written(key, recipe)) continue;
      if (key.type == KeyType::datasets && value_of(key, recipe) != "[]") {
        body += "  " + key.name + ":\n";
        const KeyValue value = key.get(recipe, key);
        for (const Recipe::Dataset& d : std::get<std::vector<Recipe::Dataset>>(value)) {
          const std::string one = format_value(key, std::vector<Recipe::Dataset>{d});
          body += "    - " + one.substr(1, one.size() - 2) + "\n";
        }
      } else {
        body += "  " + key.name + ": " + value_of(key, recipe) + "\n";
      }
    }
    if (!body.empty()) out += section + ":\n" + body;
  }
  return out;
}

namespace {
template <class Wanted>
std::string hash_of_keys(const Recipe& recipe, const Wanted& wanted) {
  uint64_t hash = kFnvStart;
  for (const KeySpec& key : key_table())
    if (key.has_field() && key.changes_results && wanted(key))
      hash = fnv1a(key.name + ": " + value_of(key, recipe) + "\n", hash);
  return hex64(hash);
}
}  // namespace

std::string recipe_fingerprint(const Recipe& recipe) {
  return hash_of_keys(recipe, [](const KeySpec&) { return true; });
}

std::string recipe_run_key(const Recipe& recipe) {
  return hash_of_keys(recipe, [](const KeySpec& key) { return key.resume == Resume::never; });
}

std::vector<RecipeDifference> recipe_differences(const Recipe& before, const Recipe& after) {
  std::vector<RecipeDifference> out;
  for (const KeySpec& key : key_table()) {
    if (!key.has_field() || key.resume == Resume::ignored) continue;
    const std::string a = value_of(key, before), b = value_of(key, after);
    if (a != b) out.push_back({str(key.section, ".", key.name), a, b, key.changes_results, key.resume});
  }
  return out;
}

}  // namespace bantam
