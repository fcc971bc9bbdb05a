// SPDX-License-Identifier: Apache-2.0
#include "schedule_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bantam {

using nlohmann::ordered_json;

std::string schedule_to_json(const ModelGraph& model, const Schedule& schedule) {
  ordered_json j;
  j["name"] = schedule.name;
  j["sets"] = ordered_json::array();
  j["actions"] = ordered_json::array();
  for (const Action& a : schedule.actions) {
    if (a.kind == Action::Kind::backward) {
      j["actions"].push_back("b " + std::to_string(a.stage));
      continue;
    }
    ordered_json names = ordered_json::array();
    for (size_t v = 0; v < a.keep.size(); ++v)
      if (a.keep[v]) names.push_back(model.stages[static_cast<size_t>(a.stage)].values[v].name);
    auto& sets = j["sets"];
    const auto at = std::find(sets.begin(), sets.end(), names) - sets.begin();
    if (at == static_cast<std::ptrdiff_t>(sets.size())) sets.push_back(names);
    j["actions"].push_back((a.offload_input ? "o " : "f ") + std::to_string(a.stage) + " " + std::to_string(at));
  }
  return j.dump();
}

std::optional<Schedule> schedule_from_json(const ModelGraph& model, const std::string& text) {
  const auto j = ordered_json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("name") || !j["name"].is_string() || !j.contains("sets") || !j["sets"].is_array() ||
      !j.contains("actions") || !j["actions"].is_array())
    return std::nullopt;
  Schedule s{.name = j["name"].get<std::string>(), .actions = {}};
  for (const auto& item : j["actions"]) {
    if (!item.is_string()) return std::nullopt;
    char kind = 0;
    int stage = -1, set = -1;
    const int n = std::sscanf(item.get_ref<const std::string&>().c_str(), "%c %d %d", &kind, &stage, &set);
    if (stage < 0 || stage >= static_cast<int>(model.stages.size())) return std::nullopt;
    if (kind == 'b' && n == 2) {
      s.actions.push_back({Action::Kind::backward, stage, {}});
      continue;
    }
    if ((kind != 'f' && kind != 'o') || n != 3 || set < 0 || set >= static_cast<int>(j["sets"].size()))
      return std::nullopt;
    const LayerGraph& g = model.stages[static_cast<size_t>(stage)];
    const auto& values = g.values;
    SavedSet keep(values.size(), false);
    for (const auto& name : j["sets"][static_cast<size_t>(set)]) {
      const auto it = std::find_if(values.begin(), values.end(), [&](const ValueInfo& v) { return name == v.name; });
      if (it == values.end()) return std::nullopt;
      keep[static_cast<size_t>(it - values.begin())] = true;
    }
    const bool offload = kind == 'o';
    if (offload && (!may_offload(g) || !keep[static_cast<size_t>(g.input)])) return std::nullopt;
    s.actions.push_back({Action::Kind::forward, stage, std::move(keep), offload});
  }
  return s;
}

std::string schedule_strip(const ModelGraph& model, const Schedule& schedule) {
  const auto analysis = analyse(model);
  std::vector<char> at(model.stages.size(), ' ');
  for (const Action& a : schedule.actions) {
    const auto s = static_cast<size_t>(a.stage);
    if (a.kind == Action::Kind::backward) break;  // what stays from the first pass is what fills memory
    if (!analysis[s].has_backward) continue;
    const LayerGraph& g = model.stages[s];
    const SavedSet all = keep_all(g, analysis[s]);
    double kept = 0, whole = 0;
    for (size_t v = 0; v < all.size(); ++v) {
      const double bytes = static_cast<double>(g.values[v].width) * static_cast<double>(size_of(g.values[v].dtype));
      whole += all[v] ? bytes : 0;
      const bool here = a.keep[v] && !(a.offload_input && static_cast<int>(v) == g.input);
      kept += all[v] && here ? bytes : 0;
    }
    const int tenths = static_cast<int>(10 * kept / whole);
    at[s] = kept == whole             ? '*'
            : a.keep == keep_input(g) ? (a.offload_input ? 'H' : 'I')
            : kept == 0               ? '.'
                                      : static_cast<char>('0' + std::clamp(tenths, 1, 9));
  }
  std::string out;
  for (size_t s = 0; s + 1 < at.size(); ++s)
    if (analysis[s].has_backward) out += at[s];
  return out;
}

}  // namespace bantam
