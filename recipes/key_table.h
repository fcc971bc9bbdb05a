// SPDX-License-Identifier: Apache-2.0
// The one table of recipe keys. Reading YAML, flags, --help, the schema, validation and the resolved recipe derive from
// it. To add a key: a field in recipe.h (its initialiser is the default) and a row in keys_*.cc.
#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "recipe.h"

namespace bantam {

/// Which part of the program brings a key or a value.
enum class Since { main, plan, cuda, data, models, rel };
constexpr bool available(Since since) {
  return since <= Since::data;
}

enum class KeyType {
  boolean,
  integer,
  number,
  size,      ///< bytes with a unit
  steps,     ///< a count, or a fraction below 1
  choice,    ///< one of `values`
  text,      ///< kept as written
  path,      ///< made absolute
  list,      ///< of text; of `values` where the key has some
  targets,   ///< list of names, or text: a word, names with commas, or a regular expression
  datasets,  ///< list of {path, type, ...}
  save,      ///< {save: [names]}
  opaque,    ///< any value; keys of later versions only
};

/// What a resume from a checkpoint may find different from the recipe it was written under.
enum class Resume {
  never,      ///< it must be the same
  on_demand,  ///< only when the user says so (--resume)
  free,       ///< it may change
  ignored     ///< not compared
};

/// A parsed value. monostate: the key's word (auto, none, epoch) in a field that is otherwise a number.
using KeyValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>,
                              std::vector<Recipe::Dataset>>;

struct ChoiceValue {
  std::string name;
  Since since = Since::main;
  bool numbered = false;  ///< name:N as well, N a whole number
};

enum class AliasKind {
  rename,     ///< another name, same values
  negated,    ///< a boolean that means the opposite
  mapped,     ///< values are translated by `map`; an empty translation says nothing about the key
  fraction,   ///< warmup_ratio: a fraction only
  per_epoch,  ///< evals_per_epoch: a whole number of times an epoch
};
struct Alias {
  std::string name;
  AliasKind kind = AliasKind::rename;
  std::vector<std::pair<std::string, std::string>> map{};
};

struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool above_min = false, below_max = false;  ///< the bound itself is outside
};

struct Refusal {
  std::string pattern;  ///< a value, or a start of one with a final *
  std::string reason;
};

struct KeySpec {
  std::string name, section;
  KeyType type = KeyType::text;
  std::string help;
  Since since = Since::main;
  bool changes_results = true;
  Resume resume = Resume::never;
  Range range{};
  std::vector<ChoiceValue> values{};
  std::string word{};                ///< stands for "no number" or "no text": auto, none, epoch
  std::vector<std::string> words{};  ///< texts that a path key takes as they are
  std::vector<Alias> aliases{};
  std::vector<std::pair<std::string, std::string>> synonyms{};  ///< foreign values and ours
  std::vector<Refusal> refusals{};
  bool required = false;
  std::string later_default{};  ///< keys without a field: the only value that is accepted, as YAML
  void (*set)(Recipe&, const KeySpec&, const KeyValue&) = nullptr;
  KeyValue (*get)(const Recipe&, const KeySpec&) = nullptr;

  bool has_field() const { return set != nullptr; }
};

const std::vector<KeySpec>& key_table();
/// In the order of a recipe: model, quantization, lora, data, memory, training, eval, output, export.
const std::vector<std::string>& sections();
std::string_view name_of(Since since);

/// By its own name; null when there is none.
const KeySpec* find_key(std::string_view name);
/// By its own name or an alias (`alias` is null for its own name).
const KeySpec* find_key_or_alias(std::string_view name, const Alias*& alias);

/// "a number > 0 and <= 1", "one of nf4, none": what errors, help and the schema say a key takes.
std::string expected(const KeySpec& key);
/// A value as one line of YAML.
std::string format_value(const KeySpec& key, const KeyValue& value);
/// The default as one line of YAML; empty for required keys.
std::string default_text(const KeySpec& key);

/// The values of a dataset's `type`, and the text of one. Index is Recipe::DatasetType.
const std::vector<ChoiceValue>& dataset_types();

}  // namespace bantam
