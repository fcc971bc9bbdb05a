// SPDX-License-Identifier: Apache-2.0
#include "cli_options.h"

#include <algorithm>
#include <set>

#include "../kernels/error.h"
#include "foreign_keys.h"
#include "help.h"
#include "key_table.h"
#include "values.h"

namespace bantam {
namespace {

std::string both_spellings(const std::string& flag) {
  std::string underscores = flag;
  std::replace(underscores.begin() + 2, underscores.end(), '-', '_');
  return underscores == flag ? flag : flag + "," + underscores;
}

/// True where the flag alone, without a value, means true.
bool switch_like(const KeySpec& key, const Alias* alias) {
  if (alias != nullptr && alias->kind != AliasKind::rename) {
    return alias->kind == AliasKind::negated ||
           std::any_of(alias->map.begin(), alias->map.end(), [](const auto& entry) { return entry.first == "true"; });
  }
  return key.type == KeyType::boolean || key.name == "gradient_checkpointing";
}

/// All spellings of all switches, with what may follow them.
const std::set<std::string>& switches() {
  static const std::set<std::string> all = [] {
    std::set<std::string> flags;
    const auto insert = [&](const std::string& name) {
      const std::string flag = flag_of(name);
      flags.insert(flag);
      flags.insert("--" + name);
    };
    for (const KeySpec& key : key_table()) {
      if (switch_like(key, nullptr)) insert(key.name);
      for (const Alias& alias : key.aliases) {
        if (switch_like(key, &alias)) insert(alias.name);
      }
    }
    return flags;
  }();
  return all;
}

bool is_assignment(const std::string& text) {
  const size_t equals = text.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                  c == '.';
         });
}

Override assignment(const std::string& text, const std::string& prefix) {
  const size_t equals = text.find('=');
  return {prefix + text.substr(0, equals), text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

void RecipeArguments::add(CLI::App& command, const std::string& name, bool is_switch, bool negatable) {
  const std::string flag = flag_of(name);
  if (is_switch) {
    flags_.push_back({command.add_flag(both_spellings(flag)), flag, name, ""});
  } else {
    // Each occurrence takes one value and all are kept; repeats are judged when the recipe is put together.
    CLI::Option* option = command.add_option(both_spellings(flag), CLI::callback_t());
    option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
    flags_.push_back({option, flag, name, ""});
  }
  if (negatable) {
    const std::string no = "--no-" + flag.substr(2);
    flags_.push_back({command.add_flag(both_spellings(no))->disable_flag_override(), no, name, "false"});
  }
}

void RecipeArguments::add_to(CLI::App& command) {
  for (const KeySpec& key : key_table()) {
    const bool is_switch = switch_like(key, nullptr);
    add(command, key.name, is_switch, is_switch);
    for (const Alias& alias : key.aliases) {
      add(command, alias.name, switch_like(key, &alias), is_switch && alias.kind == AliasKind::rename);
    }
  }
  set_ = command.add_option("--set", CLI::callback_t());
  set_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
}

std::filesystem::path RecipeArguments::take(const CLI::App& command, std::vector<Override>& overrides) const {
  std::filesystem::path recipe;
  const std::vector<std::string> rest = command.remaining();
  for (const std::string& text : rest) {
    if (text.size() > 1 && text[0] == '-' && text != "--") throw_unknown_flag(command, text);
  }
  for (const std::string& text : rest) {
    if (text == "--") continue;
    if (is_assignment(text)) {
      overrides.push_back(assignment(text, ""));
    } else if (recipe.empty() && !text.empty()) {
      recipe = text;
    } else {
      throw Error(ErrorCode::usage, str("found ", show(text), " after the recipe, expected flags or key=value"),
                  str("bantam ", command.get_name(), " --help"));
    }
  }
  for (const std::string& text : set_->results()) {
    if (!is_assignment(text)) throw Error(ErrorCode::usage, str("--set: found ", show(text), ", expected key=value"));
    overrides.push_back(assignment(text, "--set "));
  }
  for (const Flag& flag : flags_) {
    for (const std::string& value : flag.option->results()) {
      overrides.push_back({flag.written, flag.key, flag.value.empty() ? value : flag.value});
    }
  }
  return recipe;
}

std::vector<std::string> join_switch_values(const std::vector<std::string>& args) {
  std::vector<std::string> out;
  for (size_t i = 0; i < args.size(); ++i) {
    out.push_back(args[i]);
    if (i + 1 >= args.size() || switches().count(args[i]) == 0) continue;
    const std::string& next = args[i + 1];
    if (parse_bool(next) || next == "auto" || next == "selective" || next == "sqrt") {
      out.back() += "=" + next;
      ++i;
    }
  }
  return out;
}

void throw_unknown_flag(const CLI::App& command, const std::string& flag) {
  const std::string name = flag.substr(0, flag.find('='));
  std::string key = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  if (const ForeignKey* foreign = find_foreign_key(key)) {
    throw Error(ErrorCode::usage,
                str(name, ": not a flag here: ",
                    foreign->reason.empty() ? "it would have no effect; leave it out" : foreign->reason));
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      if (long_name.find('_') == std::string::npos) known.push_back("--" + long_name);
    }
  }
  const std::string near = nearest(name, known);
  throw Error(ErrorCode::usage, str(name, ": unknown flag", near.empty() ? "" : str(", did you mean ", near, "?")),
              str("bantam ", command.get_name(), " --help lists the flags"));
}

}  // namespace bantam
