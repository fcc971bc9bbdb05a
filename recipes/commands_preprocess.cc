// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "../quant/safetensors.h"
#include "commands.h"
#include "data_text.h"
#include "session.h"

namespace bantam {

int preprocess_command(const Recipe& recipe, const CommandOptions& options) {
  const Session s = data_session(recipe, options);
  const PackingStats packing = packing_of(s);
  const std::string json = data_json(s, packing);
  if (options.json) {
    std::printf("%s", json.c_str());
  } else {
    std::printf("%s%s", data_text(s, packing).c_str(), debug_rows(s, options).c_str());
  }
  std::fflush(stdout);  // before anything can fail
  std::error_code ec;
  std::filesystem::create_directories(recipe.output_dir, ec);
  write_file_atomically(std::filesystem::path(recipe.output_dir) / "data_report.json", json);
  return 0;
}

}  // namespace bantam
