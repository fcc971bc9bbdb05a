// SPDX-License-Identifier: Apache-2.0
#include "lora_config.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "../kernels/error.h"

namespace bantam {

namespace {
bool ends_with_module(const std::string& path, const std::string& name) {
  if (path == name) return true;
  return path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '.';
}
bool is_plain_name(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(),
                                   [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; });
}
std::string last_names(const std::vector<std::string>& linears) {
  std::set<std::string> names;
  for (const auto& l : linears) names.insert(l.substr(l.rfind('.') + 1));
  std::string out;
  for (const auto& n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}
}  // namespace

float LoraConfig::scale() const {
  return static_cast<float>(use_rslora ? lora_alpha / std::sqrt(static_cast<double>(r))
                                       : lora_alpha / static_cast<double>(r));
}

std::vector<std::string> match_target_modules(const std::vector<std::string>& target_modules,
                                              const std::vector<std::string>& linears) {
  if (target_modules.empty())
    throw Error(ErrorCode::usage, "lora_target_modules: empty list", "name modules, or use all-linear");
  if (target_modules.size() == 1 && target_modules[0] == "all-linear") return linears;

  std::vector<std::string> chosen;
  const auto nothing = [&](const std::string& target) {
    return Error(ErrorCode::usage, str("lora_target_modules: '", target, "' matches no linear module of this model"),
                 str("its linear modules are ", last_names(linears)));
  };
  if (target_modules.size() == 1 && !is_plain_name(target_modules[0])) {
    std::regex regex;
    try {
      regex = std::regex(target_modules[0]);
    } catch (const std::regex_error& e) {
      throw Error(ErrorCode::usage,
                  str("lora_target_modules: '", target_modules[0], "' is not a regular expression: ", e.what()),
                  "use a list of module names, or an expression such as .*\\.(q|v)_proj");
    }
    for (const auto& l : linears)
      if (std::regex_match(l, regex)) chosen.push_back(l);
    if (chosen.empty()) throw nothing(target_modules[0]);
    return chosen;
  }
  std::vector<bool> used(target_modules.size());
  for (const auto& l : linears) {
    bool hit = false;
    for (size_t t = 0; t < target_modules.size(); ++t)
      if (ends_with_module(l, target_modules[t])) hit = used[t] = true;
    if (hit) chosen.push_back(l);
  }
  for (size_t t = 0; t < used.size(); ++t)
    if (!used[t]) throw nothing(target_modules[t]);
  return chosen;
}

}  // namespace bantam
