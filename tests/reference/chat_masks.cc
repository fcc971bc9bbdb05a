// SPDX-License-Identifier: Apache-2.0
// Ids and masks of many conversations, for compare_chat_masks.py.
//   bantam_chat_masks MODEL CASES OUT
// CASES: lines {"template": TEXT, "messages": [...], "tools": [...] or null, "variables": {...}, "roles": [...],
// "eos": "turn"}. OUT: for each a line {"text", "ids", "trained"} or {"error"}.
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "finetune/data/chat/chat_encoder.h"
#include "kernels/error.h"

using namespace bantam;
using nlohmann::ordered_json;

namespace {

Conversation conversation_of(const ordered_json& row) {
  Conversation out;
  out.messages = JinjaValue::from_json(row.at("messages"));
  out.tools = JinjaValue::from_json(row.value("tools", ordered_json()));
  const ordered_json variables = row.value("variables", ordered_json::object());
  for (const auto& [key, value] : variables.items()) out.variables.emplace_back(key, JinjaValue::from_json(value));
  for (const auto& message : row.at("messages")) out.turns.push_back({message.at("role"), {}, {}});
  return out;
}

MaskOptions options_of(const ordered_json& row) {
  MaskOptions out;
  if (row.contains("roles")) out.roles_to_train = row.at("roles").get<std::vector<std::string>>();
  const std::string eos = row.value("eos", "turn");
  out.train_on_eos = eos == "none"   ? TrainOnEos::none
                     : eos == "last" ? TrainOnEos::last
                     : eos == "all"  ? TrainOnEos::all
                                     : TrainOnEos::turn;
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fputs("usage: bantam_chat_masks MODEL CASES OUT\n", stderr), 2;
  const auto tokenizer = load_tokenizer(argv[1]);
  std::map<std::string, ChatEncoder> encoders;
  std::ifstream in(argv[2]);
  std::ofstream out(argv[3]);
  for (std::string line; std::getline(in, line);) {
    const auto row = ordered_json::parse(line);
    ordered_json result;
    try {
      const std::string source = row.at("template");
      const MaskOptions options = options_of(row);
      std::string key = source + row.value("eos", "turn");
      for (const auto& role : options.roles_to_train) key += role;
      auto at = encoders.find(key);
      if (at == encoders.end()) {
        const auto parsed = std::make_shared<ChatTemplate>(ChatTemplate::from_text(source, "template", argv[1]));
        at = encoders.emplace(key, ChatEncoder(tokenizer, parsed, options)).first;
      }
      const Conversation conversation = conversation_of(row);
      const Sample sample = at->second.encode(conversation);
      result = {{"text", at->second.text(conversation).text}, {"ids", sample.ids}, {"trained", sample.trained}};
    } catch (const Error& e) {
      result = {{"error", e.what()}};
    }
    out << result.dump() << '\n';
  }
  return out.flush() ? 0 : 1;
} catch (const Error& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
