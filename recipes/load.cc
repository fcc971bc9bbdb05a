// SPDX-License-Identifier: Apache-2.0
#include "load.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "../kernels/error.h"
#include "foreign_keys.h"
#include "parse_value.h"
#include "resolve.h"
#include "values.h"
#include "yaml_tree.h"

namespace bantam {
namespace {

using Kind = YamlNode::Kind;

class Loader {
 public:
  explicit Loader(std::string file) : file_(std::move(file)) {}

  void read(std::string_view text) {
    std::vector<YamlProblem> problems;
    const YamlNode root = parse_yaml(text, problems);
    for (const YamlProblem& p : problems) fail({p.line, p.column, ""}, p.message);
    broken_ = root.kind == Kind::null && !problems.empty();
    if (root.kind == Kind::map) {
      walk(root, "");
    } else if (root.kind != Kind::null) {
      fail({root.line, root.column, ""}, str("found ", describe(root), ", expected keys and values"));
    }
  }
  void read(const std::vector<Override>& overrides);
  LoadedRecipe finish(bool has_file);

 private:
  void walk(const YamlNode& map, const std::string& section);
  void leaf(const YamlNode& name, const YamlNode& value, const std::string& section);
  bool foreign(const std::string& name, const Place& place, const YamlNode& value);
  void set(const KeySpec& key, const Alias* alias, Place place, const std::string& written, const YamlNode& value);
  bool translate_alias(const Alias& alias, Place& place, YamlNode& node, Setting& setting);
  bool later(const KeySpec& key, const Place& place, const YamlNode& node);
  void store(Setting setting);
  void fail(const Place& place, const std::string& message) { problems_.push_back({place, message}); }

  std::string file_;
  std::vector<Problem> problems_;
  Settings file_settings_, flag_settings_;
  std::vector<std::string> other_names_, no_effect_, notices_;
  std::set<const KeySpec*> tried_;
  bool broken_ = false;  ///< no tree could be made
  bool evaluation_off_ = false;
  Place evaluation_off_place_;
};

std::string path_of(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

void Loader::walk(const YamlNode& map, const std::string& section) {
  for (const auto& [name, value] : map.entries) {
    const bool is_section = section.empty() && std::count(sections().begin(), sections().end(), name.text) > 0;
    const Alias* alias = nullptr;
    if (!is_section) {
      leaf(name, value, section);
    } else if (value.kind == Kind::map) {
      walk(value, name.text);
    } else if (value.kind == Kind::null) {
      // An empty section.
    } else if (find_key_or_alias(name.text, alias) != nullptr) {
      leaf(name, value, "");
    } else {
      fail({value.line, value.column, name.text},
           str("found ", describe(value), ", expected the keys of the section ", name.text));
    }
  }
}

bool Loader::foreign(const std::string& name, const Place& place, const YamlNode& value) {
  const ForeignKey* key = find_foreign_key(name);
  if (key == nullptr) return false;
  const bool harmless = switched_off(value) || (value.kind == Kind::scalar &&
                                                std::count(key->harmless.begin(), key->harmless.end(), value.text) > 0);
  if (key->kind == ForeignKey::Kind::no_effect || (key->kind == ForeignKey::Kind::would_change && harmless)) {
    no_effect_.push_back(name);
  } else {
    fail(place, str("not a key here: ", key->reason));
  }
  return true;
}

std::string unknown_key(const std::string& name, bool with_sections) {
  std::vector<std::string> candidates;
  for (const KeySpec& key : key_table()) candidates.push_back(key.name);
  if (with_sections) candidates.insert(candidates.end(), sections().begin(), sections().end());
  for (const KeySpec& key : key_table()) {
    for (const Alias& alias : key.aliases) candidates.push_back(alias.name);
  }
  const std::string near = nearest(name, candidates);
  return near.empty() ? "unknown key" : str("unknown key, did you mean ", near, "?");
}

void Loader::leaf(const YamlNode& name, const YamlNode& value, const std::string& section) {
  const Place place{name.line, name.column, path_of(section, name.text)};
  const Alias* alias = nullptr;
  const KeySpec* key = find_key_or_alias(name.text, alias);
  if (key == nullptr) {
    if (!foreign(name.text, place, value)) fail(place, unknown_key(name.text, section.empty()));
  } else if (!section.empty() && key->section != section) {
    fail(place, str("found in the section ", section, ", expected in ", key->section, " or at the top"));
  } else if (value.kind == Kind::null) {
    if (key->required) {
      tried_.insert(key);
      fail(place, str("found nothing, expected ", expected(*key)));
      return;
    }
    if (!key->has_field()) return;
    notices_.push_back(str(show_place(file_, place), ": no value, the default (", default_text(*key), ") is used"));
  } else {
    set(*key, alias, place, name.text, value);
  }
}

void Loader::read(const std::vector<Override>& overrides) {
  for (const Override& o : overrides) {
    Place place{0, 0, o.written};
    std::string name = o.key;
    std::replace(name.begin(), name.end(), '-', '_');
    std::string section;
    if (const size_t dot = name.find('.'); dot != std::string::npos) {
      section = name.substr(0, dot);
      name.erase(0, dot + 1);
    }
    YamlNode value = YamlNode::scalar(o.value);
    const Alias* alias = nullptr;
    const KeySpec* key = find_key_or_alias(name, alias);
    if (key == nullptr) {
      if (!foreign(name, place, value)) fail(place, unknown_key(name, false));
      continue;
    }
    if (!section.empty() && section != key->section) {
      fail(place, str("found the section ", section, ", expected ", key->section));
      continue;
    }
    if (!o.value.empty() && (o.value[0] == '[' || o.value[0] == '{') && key->type != KeyType::text &&
        key->type != KeyType::path) {
      std::vector<YamlProblem> problems;
      value = parse_yaml(o.value, problems);
      for (const YamlProblem& p : problems) fail(place, p.message);
      if (!problems.empty()) continue;
    }
    set(*key, alias, place, name, value);
  }
}

/// Turns the value of an alias into one of the key. False: the value is wrong, or says nothing about the key.
bool Loader::translate_alias(const Alias& alias, Place& place, YamlNode& node, Setting& setting) {
  if (alias.kind == AliasKind::rename) return true;
  const auto wrong = [&](const std::string& expected_text) {
    fail(place, str("found ", describe(node), ", expected ", expected_text));
    return false;
  };
  const bool scalar = node.kind == Kind::scalar;
  switch (alias.kind) {
    case AliasKind::rename:
      return true;
    case AliasKind::negated: {
      const auto flag = parse_bool(node.text);
      if (!scalar || !flag) return wrong("true or false (also yes, no, on, off)");
      node.text = *flag ? "false" : "true";
      return true;
    }
    case AliasKind::fraction: {
      const auto number = parse_number(node.text);
      if (!scalar || !number || *number < 0 || *number >= 1) return wrong("a fraction from 0 to below 1");
      return true;
    }
    case AliasKind::per_epoch: {
      const auto count = parse_integer(node.text);
      if (!scalar || !count || *count < 1 || *count > 1'000'000) return wrong("a whole number from 1 to 1000000");
      // How many steps that is follows from num_epochs, which may come later.
      setting.per_epoch = *count;
      node.text = "epoch";
      return true;
    }
    case AliasKind::mapped:
      break;
  }
  std::string text = node.text, choices;
  const auto flag = parse_bool(text);
  for (const auto& [foreign_value, ours] : alias.map) {
    const bool same = scalar && (text == foreign_value || (flag && foreign_value == (*flag ? "true" : "false")));
    choices += (choices.empty() ? "" : ", ") + foreign_value;
    if (!same) continue;
    if (ours.empty() && flag && !*flag && setting.key->section == "eval") {
      evaluation_off_ = true;
      evaluation_off_place_ = place;
    }
    if (ours.empty()) no_effect_.push_back(alias.name);
    node.text = ours;
    return !ours.empty();
  }
  return wrong("one of " + choices);
}

bool Loader::later(const KeySpec& key, const Place& place, const YamlNode& node) {
  if (key.has_field()) return false;
  bool same = switched_off(node) && key.later_default == "none";
  if (!same && key.type != KeyType::opaque) {
    std::vector<YamlProblem> problems;
    ValueReader reader;
    const auto usual = reader.read(key, parse_yaml(key.later_default, problems)), given = reader.read(key, node);
    same = usual && given && *usual == *given;
  }
  if (!same) {
    fail(place, str("found ", describe(node), ": ", kNotAvailable, " (only its default, ", key.later_default, ")"));
  }
  return true;
}

void Loader::set(const KeySpec& key, const Alias* alias, Place place, const std::string& written,
                 const YamlNode& value) {
  Setting setting;
  tried_.insert(&key);
  setting.key = &key;
  setting.place = place;
  setting.written = written;
  YamlNode node = value;
  if (value.line > 0) place.line = value.line, place.column = value.column;
  const bool from_file = setting.place.line > 0;
  if (alias != nullptr) {
    if (!translate_alias(*alias, place, node, setting)) return;
    setting.mapped = alias->kind == AliasKind::mapped;
    if (from_file) other_names_.push_back(str(alias->name, " (here ", key.name, ")"));
  }
  if (later(key, place, node)) return;
  ValueReader reader;
  auto parsed = reader.read(key, node);
  for (const ValueIssue& issue : reader.issues) {
    Place at = place;
    // Places inside a flag's value mean nothing to people.
    if (from_file && issue.line > 0) at.line = issue.line, at.column = issue.column;
    at.path += issue.suffix;
    fail(at, issue.message);
  }
  other_names_.insert(other_names_.end(), reader.synonyms.begin(), reader.synonyms.end());
  if (!parsed) return;
  setting.value = std::move(*parsed);
  store(std::move(setting));
}

void Loader::store(Setting setting) {
  Settings& settings = setting.place.line > 0 ? file_settings_ : flag_settings_;
  const auto [it, fresh] = settings.try_emplace(setting.key, setting);
  if (fresh) return;
  Setting& first = it->second;
  // --data may be repeated.
  if (setting.place.line == 0 && setting.key->type == KeyType::datasets) {
    auto& all = std::get<std::vector<Recipe::Dataset>>(first.value);
    const auto& more = std::get<std::vector<Recipe::Dataset>>(setting.value);
    all.insert(all.end(), more.begin(), more.end());
    return;
  }
  // Tools of others say some things twice (adapter: qlora, load_in_4bit: true); agreeing is fine there.
  if ((first.mapped || setting.mapped) && first.value == setting.value) return;
  const std::string other = first.place.line > 0 ? str(first.written, " on line ", first.place.line) : first.place.path;
  fail(setting.place, str("found a second value for ", setting.key->name, ", the first is ", other));
}

LoadedRecipe Loader::finish(bool has_file) {
  LoadedRecipe out;
  if (broken_) throw_problems(file_, problems_);
  if (!other_names_.empty()) {
    std::string line = "names of other tools:";
    std::vector<std::string> once;
    for (const std::string& name : other_names_) {
      if (std::count(once.begin(), once.end(), name) == 0) once.push_back(name);
    }
    for (const std::string& name : once) line += (&name == &once.front() ? " " : ", ") + name;
    notices_.push_back(line);
  }
  if (!no_effect_.empty()) {
    std::string line = "keys of other tools without effect here: ";
    for (const std::string& name : no_effect_) line += (&name == &no_effect_.front() ? "" : ", ") + name;
    notices_.push_back(line);
  }
  Resolution resolution{.file = has_file ? file_ : "", .problems = problems_, .notices = notices_, .tried = tried_};
  if (evaluation_off_) resolution.evaluation_off = &evaluation_off_place_;
  out.recipe = resolve(file_settings_, flag_settings_, resolution);
  throw_problems(file_, problems_);
  out.notices = std::move(notices_);
  return out;
}

}  // namespace

LoadedRecipe parse_recipe(std::string_view text, const std::string& name, const std::vector<Override>& overrides) {
  Loader loader(name);
  loader.read(text);
  loader.read(overrides);
  return loader.finish(true);
}

LoadedRecipe load_recipe(const std::filesystem::path& path, const std::vector<Override>& overrides) {
  if (path.empty()) {
    Loader loader("");
    loader.read(overrides);
    return loader.finish(false);
  }
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw Error(ErrorCode::usage, str(path.string(), ": found a folder, expected a recipe file"));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::usage, str(path.string(), ": cannot open the recipe"), "check the path");
  // One byte over the limit is enough for the reader to refuse the file.
  std::string text(kMaxYamlBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw Error(ErrorCode::io, str(path.string(), ": cannot read the recipe"));
  text.resize(static_cast<size_t>(in.gcount()));
  return parse_recipe(text, path.string(), overrides);
}

}  // namespace bantam
