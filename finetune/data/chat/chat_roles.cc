// SPDX-License-Identifier: Apache-2.0
#include "chat_roles.h"

#include <utility>

namespace bantam {
namespace {

constexpr std::pair<std::string_view, std::string_view> kUsual[] = {
    {"human", "user"},
    {"user", "user"},
    {"prompter", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"bot", "assistant"},
    {"system", "system"},
    {"developer", "developer"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"tool_response", "tool"},
    {"function", "function"},
    {"ipython", "ipython"},
    {"function_call", kFunctionCallRole},
    {"tool_call", kFunctionCallRole},
};

}  // namespace

std::optional<std::string_view> usual_role(std::string_view name) {
  for (const auto& [from, to] : kUsual)
    if (from == name) return to;
  return std::nullopt;
}

std::string_view map_role(const std::string& name, bool foreign, const DatasetSpec& spec, const RowPath& path) {
  for (const auto& [from, to] : spec.roles)
    if (from == name) return to;
  if (!foreign) return name;
  if (const auto role = usual_role(name)) return *role;
  std::string known;
  for (const auto& [from, to] : kUsual) known += (known.empty() ? "" : ", ") + std::string(from);
  row_fault(path, str("unknown role '", printable(name, 60), "', known are ", known),
            str("say who that is, under the dataset: roles: {user: [", printable(name, 60),
                "]} (or assistant, system, tool)"));
}

bool is_tool_role(std::string_view role) {
  return role == "tool" || role == "function" || role == "ipython";
}

}  // namespace bantam
